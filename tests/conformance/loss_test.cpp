#include <sluice/when_all.hpp>

#include "tests/conformance/pair.hpp"
#include "tests/conformance/process.hpp"

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <vector>

namespace sluice::conformance {

namespace {

constexpr auto everything = access::remote_read | access::remote_write | access::remote_atomic;
constexpr std::size_t large = std::size_t{8} << 20;

// ---- the child serves and is killed ----

task<void> serve_one(runtime& rt, const provider& p, const child_process::channel& pipes) {
    listen_options options;
    options.connection = with_lanes(p, {});
    auto listener = must(co_await rt.listen(listen_address(p), options));
    pipes.say(listener.address().to_string());
    connection peer = must(co_await listener.accept());
    buffer memory(large);
    fill(memory.bytes(), 1);
    co_await share_until_closed(peer, memory, everything);
}

task<result<void>> use_until_broken(connection& c, remote_region theirs, region_view mine, int kind) {
    for (;;) {
        const std::size_t size = kind == 2 ? 8 : mine.size_bytes();
        auto done = co_await move_task(kind == 1, c, theirs.first(size), mine.first(size));
        if (!done) co_return done;
    }
}

task<result<void>> kill_when_busy(connection& c, child_process& peer) {
    while (c.stats().read.operations < 20 || c.stats().write.operations < 2) co_await yield();
    peer.kill_now();
    co_return result<void>{};
}

/// Everything in flight ends with one cause; so does what comes later.
task<void> loses_the_server(runtime& rt, const provider& p, std::string to, child_process& peer) {
    connection c = must(co_await rt.connect(to, with_lanes(p, {})));
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(large);
    std::vector<task<result<void>>> uses;
    for (int i = 0; i < 12; ++i) uses.push_back(use_until_broken(c, theirs, mine, i % 3));
    uses.push_back(kill_when_busy(c, peer));
    std::optional<result<received>> received_end;
    scope running;
    running.spawn(detail::store(receive_task(c, mine), received_end));
    const auto ended = co_await when_all(std::move(uses));
    must(co_await running.join());
    const error cause = must_fail(co_await c.closed(), condition::closed);
    for (std::size_t i = 0; i + 1 < ended.size(); ++i)
        VERIFY_EQUAL(must_fail(ended[i], condition::closed).message(), cause.message());
    VERIFY_EQUAL(must_fail(*received_end, condition::closed).message(), cause.message());
    VERIFY(!c.is_open());
    must_fail(co_await c.read(theirs.first(8), mine.first(8)), condition::closed);
    static_cast<void>(co_await c.close()); // whatever it says, it must not hang
}

// ---- the child uses and is killed ----

task<void> write_for_ever(runtime& rt, const provider& p, std::string to) {
    connection c = must(co_await rt.connect(to, with_lanes(p, {})));
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(large);
    fill_with(mine.bytes(), std::byte{0x11});
    for (;;) must(co_await c.write(theirs, mine));
}

task<void> loses_clients(runtime& rt, const provider& p, std::vector<std::optional<child_process>>& clients) {
    listen_options options;
    options.connection = with_lanes(p, {});
    auto listener = must(co_await rt.listen(listen_address(p), options));
    for (auto& client : clients) {
        client->pipes().say(listener.address().to_string());
        connection c = must(co_await listener.accept());
        buffer memory(large);
        auto shared = must(co_await c.share(memory, everything));
        must(co_await c.send(shared.description()));
        co_await until_used(c, 3);
        client->kill_now();
        must_fail(co_await c.closed(), condition::closed);
        shared.revoke();
        fill_with(memory.bytes(), std::byte{0x5a});
        for (int i = 0; i < 50; ++i) co_await yield();
        must_be_all(memory.bytes(), std::byte{0x5a});
    }
}

} // namespace

CONFORMANCE_TEST("Loss.kill_9_of_the_serving_process_ends_every_operation_with_one_cause", p) {
    child_process server([&p](const child_process::channel& pipes) {
        runtime rt = make_runtime(1);
        rt.sync_wait(serve_one(rt, p, pipes));
    });
    const std::string to = server.pipes().hear();
    REQUIRE_FALSE(to.empty());
    run_alone([&](runtime& rt) { return loses_the_server(rt, p, to, server); });
}

CONFORMANCE_TEST("Loss.kill_9_of_using_processes_leaves_the_server_whole", p) {
    std::vector<std::optional<child_process>> clients(3);
    for (auto& client : clients) {
        client.emplace([&p](const child_process::channel& pipes) {
            const std::string to = pipes.hear();
            runtime rt = make_runtime(1);
            rt.sync_wait(write_for_ever(rt, p, to));
        });
    }
    run_alone([&](runtime& rt) { return loses_clients(rt, p, clients); });
}

} // namespace sluice::conformance
