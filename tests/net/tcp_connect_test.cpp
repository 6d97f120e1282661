#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>
#include <sluice/stream.hpp>
#include <sluice/timeout.hpp>
#include <sluice/when_all.hpp>

#include "net/wire.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <thread>

using namespace sluice;
using namespace std::chrono_literals;

namespace {

runtime make_runtime(std::uint32_t executors = 1) {
    auto made = runtime::create({.executors = executors, .pool_bytes = 8 << 20, .pin = false});
    REQUIRE(made);
    return std::move(*made);
}

/// Serves one connection: shares a page, tells the peer, and waits until it leaves.
task<std::string> serve_one(runtime& rt, listener& on) {
    auto peer = co_await on.accept();
    if (!peer) co_return peer.error().message();
    auto page = co_await rt.pool().allocate(4096);
    if (!page) co_return page.error().message();
    std::fill(page->bytes().begin(), page->bytes().end(), std::byte{42});
    auto shared = co_await peer->share(*page, access::remote_read);
    if (!shared) co_return shared.error().message();
    auto sent = co_await peer->send(shared->description());
    if (!sent) co_return sent.error().message();
    auto left = co_await peer->closed();
    if (!left) co_return left.error().message();
    co_return "served over " + std::to_string(peer->capabilities().lanes) + " lanes";
}

task<std::string> fetch(runtime& rt, address from, connection_options options) {
    auto conn = co_await rt.connect(from, options);
    if (!conn) co_return conn.error().message();
    auto region = co_await conn->receive<remote_region>();
    if (!region) co_return region.error().message();
    auto buffer = co_await rt.pool().allocate(region->size_bytes);
    if (!buffer) co_return buffer.error().message();
    auto done = co_await conn->read(*region, *buffer);
    if (!done) co_return done.error().message();
    const bool right = buffer->bytes()[0] == std::byte{42} && buffer->bytes()[4095] == std::byte{42};
    auto closed = co_await conn->close();
    if (!closed) co_return closed.error().message();
    co_return std::string(right ? "read it" : "wrong bytes") + ", " + conn->choice();
}

task<std::string> both(runtime& rt, std::string on, connection_options options) {
    listen_options listening;
    listening.connection.lanes = 4;
    auto l = co_await rt.listen(std::string_view(on), listening);
    if (!l) co_return l.error().message();
    auto results = co_await when_all(serve_one(rt, *l), fetch(rt, l->address(), options));
    co_return std::get<0>(results) + "; " + std::get<1>(results);
}

} // namespace

TEST_CASE("Tcp_connect.serves_over_every_kind_of_address") {
    auto rt = make_runtime();
    CHECK(rt.sync_wait(both(rt, "tcp://127.0.0.1:0", {})) == "served over 1 lanes; read it, tcp: asked for by the address");
    // The rest says why not over RDMA: no machine has a device at the loopback address.
    CHECK(rt.sync_wait(both(rt, "auto://[::1]:0", {})).starts_with("served over 1 lanes; read it, tcp: "));
    CHECK(rt.sync_wait(both(rt, "tcp://@sluice-connect-test", {})) == "served over 1 lanes; read it, tcp: asked for by the address");
    CHECK(rt.sync_wait(both(rt, "tcp://localhost:0", {.lanes = 3})) == "served over 3 lanes; read it, tcp: asked for by the address");
}
