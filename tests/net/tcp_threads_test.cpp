#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>
#include <sluice/when_all.hpp>

#include "tests/net/tcp_pair.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace sluice;
using namespace sluice::testing;

namespace {

/// Catch2's assertions are for one thread, which is the client's here; the servers throw.
template <class T>
T&& must(T&& r) {
    if (!r) throw std::runtime_error(r.error().message());
    return std::forward<T>(r);
}

task<void> serve(runtime& rt, connection peer, std::atomic<int>& served) {
    auto ours = must(co_await rt.pool().allocate(256 * 1024));
    auto shared = must(co_await peer.share(*ours, all_access));
    must(co_await peer.send(shared->description()));
    auto in = must(co_await rt.pool().allocate(64));
    for (;;) {
        auto got = co_await peer.receive(*in);
        if (!got) break;
        auto back = co_await peer.send(*in);
        if (!back) break;
    }
    auto left = co_await peer.closed();
    if (left) ++served;
}

/// Listens, says where, and serves whoever comes until it is closed.
task<void> serve_all(runtime& rt, address& where, bool reuse_port, std::atomic<listener*>& out, std::latch& ready,
                     std::atomic<int>& served) {
    listen_options options;
    options.connection.lanes = 4;
    options.reuse_port = reuse_port;
    auto l = must(co_await rt.listen(where, options));
    where = l->address();
    out = &*l;
    ready.count_down();
    scope clients;
    for (;;) {
        auto peer = co_await l->accept();
        if (!peer) break;
        clients.spawn(serve(rt, std::move(*peer), served));
    }
    must(co_await clients.join());
}

struct server {
    server(runtime& rt, address on, bool reuse_port, std::uint32_t executor)
        : rt_(rt), executor_(executor), where(std::move(on)),
          thread_([this, reuse_port] { rt_.sync_wait(serve_all(rt_, where, reuse_port, listener_, ready_, served), executor_); }) {
        ready_.wait();
    }
    ~server() {
        rt_.sync_wait(close(listener_), executor_);
        thread_.join();
    }
    static task<void> close(std::atomic<listener*>& l) {
        l.load()->close();
        co_return;
    }

    runtime& rt_;
    std::uint32_t executor_;
    address where;
    std::atomic<int> served{0};
    std::latch ready_{1};
    std::atomic<listener*> listener_{nullptr};
    std::thread thread_;
};

address loopback() {
    address where;
    where.scheme = scheme::tcp;
    where.host = "127.0.0.1";
    return where;
}

task<void> use(runtime& rt, address to, std::uint32_t lanes) {
    auto conn = co_await rt.connect(to, {.lanes = lanes});
    if (!conn) UNSCOPED_INFO(conn.error().message());
    REQUIRE(conn);
    auto region = co_await conn->receive<remote_region>();
    REQUIRE(region);
    memory mine(256 * 1024, 7);
    memory word(64, 3);
    for (int i = 0; i < 5; ++i) {
        auto put = co_await conn->write(*region, mine);
        REQUIRE(put);
        mine.fill(0);
        auto got = co_await conn->read(*region, mine);
        REQUIRE(got);
        CHECK(mine.holds(7));
        auto asked = co_await conn->send(word);
        REQUIRE(asked);
        memory in(64, 0);
        auto answered = co_await conn->receive(in);
        REQUIRE(answered);
        CHECK(in.holds(3));
    }
    auto closed = co_await conn->close();
    CHECK(closed);
}

task<void> many(runtime& rt, address to, int count, std::uint32_t lanes) {
    scope all;
    for (int i = 0; i < count; ++i) all.spawn(use(rt, to, lanes));
    auto joined = co_await all.join();
    REQUIRE(joined);
}

} // namespace

TEST_CASE("Tcp_threads.executors_of_one_process_talk_to_each_other") {
    auto rt = runtime::create({.executors = 2, .pool_bytes = 8 << 20, .pin = false});
    REQUIRE(rt);
    server one(*rt, loopback(), false, 1);
    rt->sync_wait(many(*rt, one.where, 8, 2), 0);
    // The last goodbye has been answered, but its serving task may not have seen it yet.
    while (one.served < 8) std::this_thread::yield();
    CHECK(one.served == 8);
}

TEST_CASE("Tcp_threads.lanes_find_their_connection_at_whichever_executor_they_arrive") {
    // Two listeners share a port: the kernel deals sockets out by their hash, so the lanes of one connection arrive on
    // both executors.
    auto rt = runtime::create({.executors = 3, .pool_bytes = 8 << 20, .pin = false});
    REQUIRE(rt);
    server one(*rt, loopback(), true, 1);
    server two(*rt, one.where, true, 2);
    rt->sync_wait(many(*rt, one.where, 12, 4), 0);
    while (one.served + two.served < 12) std::this_thread::yield();
    CHECK(one.served + two.served == 12);
}
