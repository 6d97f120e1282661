#include <sluice/when_all.hpp>

#include "tests/conformance/pair.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <vector>

namespace sluice::conformance {

namespace {

using namespace std::chrono_literals;

constexpr auto read_and_write = access::remote_read | access::remote_write;
constexpr std::size_t large = std::size_t{16} << 20;

/// Shares memory, then holds its own thread up until the gate opens: what arrives meanwhile is not served.
task<void> serve_when_open(runtime&, connection& c, gate& g, std::size_t size_bytes) {
    buffer memory(size_bytes);
    fill(memory.bytes(), 1);
    auto shared = must(co_await c.share(memory, read_and_write | access::remote_atomic));
    must(co_await c.send(shared.description()));
    must(co_await c.receive<char>());
    g.hold();
    must(co_await c.closed());
}

task<remote_region> hold_peer(connection& c, gate& g) {
    const remote_region theirs = must(co_await c.receive<remote_region>({.deadline = 30s}));
    must(co_await c.send(char{1}, {.deadline = 30s}));
    co_await g.until_held();
    co_return theirs;
}

/// The connection serves as before after what was canceled.
task<void> still_works(connection& c, remote_region theirs) {
    buffer mine(theirs.size_bytes);
    must(co_await c.write(theirs, mine));
    fill(mine.bytes(), 77);
    must(co_await c.write(theirs, mine));
    fill_with(mine.bytes(), std::byte{});
    must(co_await c.read(theirs, mine));
    must_hold(mine.bytes(), 77);
}

template <class T>
void must_be_canceled_or_done(const result<T>& r) {
    if (!r) must_fail(r, condition::canceled);
}

/// Deadlines of operations that the peer does not serve: sent, stuck in the middle of their bytes, or queued over the
/// limit of operations in flight.
task<void> deadlines_pass(runtime&, connection& c, gate& g) {
    const gate::opener at_the_end(g);
    const remote_region theirs = co_await hold_peer(c, g);
    buffer mine(theirs.size_bytes);
    buffer small(8);
    fill_with(mine.bytes(), std::byte{0xee});
    std::vector<task<result<void>>> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.push_back(read_task(c, theirs, mine, {.deadline = 20ms}));
        waiting.push_back(write_task(c, theirs, mine, {.deadline = 20ms}));
        waiting.push_back(read_task(c, theirs.first(8), small, {.deadline = 10ms}));
        waiting.push_back(write_task(c, theirs.first(8), small, {.deadline = 30ms}));
    }
    const auto ended = co_await when_all(std::move(waiting));
    for (const auto& r : ended) must_fail(r, errc::deadline_exceeded);
    const auto added = co_await c.fetch_add(theirs.first(8), 1, {.deadline = 5ms});
    must_fail(added, condition::timed_out);
    VERIFY_EQUAL(c.stats().read.failures, 6U);
    must_be_all(mine.bytes(), std::byte{0xee}); // nothing was served, so nothing may have arrived
    g.open();
    co_await still_works(c, theirs);
}

task<void> default_deadline_passes(runtime&, connection& c, gate& g) {
    const gate::opener at_the_end(g);
    const remote_region theirs = co_await hold_peer(c, g);
    buffer mine(8);
    must_fail(co_await c.read(theirs.first(8), mine), errc::deadline_exceeded);
    g.open();
    must(co_await c.read(theirs.first(8), mine, {.deadline = 30s})); // its own counts
}

/// A stop at each of the stages that an operation goes through while the peer serves: before it begins, queued, sent,
/// in the middle of its bytes, done.
task<void> stops_at_every_stage(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes);
    int canceled = 0;
    for (int turns = 0; turns < 60; turns += 1 + turns / 12) {
        fill_with(mine.bytes(), std::byte{0xee});
        const bool writes = turns % 2 == 1;
        auto ended = co_await stopped_after(turns, move_task(writes, c, theirs, mine));
        must_be_canceled_or_done(ended);
        canceled += ended ? 0 : 1;
        if (ended && !writes) VERIFY_EQUAL(first_other(mine.bytes(), std::byte{0xee}), 0U);
        // The memory is ours again: whatever is still under way must not reach it.
        fill_with(mine.bytes(), std::byte{0xcc});
        std::byte one_byte{};
        memory_region one = must(memory_region::create({&one_byte, 1}));
        for (int i = 0; i < 3; ++i) must(co_await c.read(theirs.first(1), one));
        must_be_all(mine.bytes(), std::byte{0xcc});
    }
    VERIFY(canceled >= 2);
    VERIFY_EQUAL(c.stats().read.failures + c.stats().write.failures, static_cast<std::uint64_t>(canceled));
    co_await still_works(c, theirs);
}

task<void> shares(runtime&, connection& c) {
    buffer memory(large);
    fill(memory.bytes(), 1);
    co_await share_until_closed(c, memory, read_and_write);
}

/// Sends that wait for credit or for the receiver's memory, and a receive that waits for a message, all end; what was
/// not canceled arrives in order.
task<void> stops_messages(runtime&, connection& c, std::atomic<bool>& go) {
    buffer message(64 * 1024);
    must_fail(co_await stopped_after(0, receive_task(c, message)), condition::canceled);
    must_fail(co_await stopped_after(20, receive_task(c, message)), condition::canceled);
    must_fail(co_await c.receive(message, {.deadline = 5ms}), errc::deadline_exceeded);
    must(co_await c.send(char{0}));
    must(co_await c.receive<char>()); // from here on the peer receives nothing until it is told to
    for (char i = 0; i < 4; ++i) must(co_await c.send(i)); // that is all its credit
    must_fail(co_await stopped_after(20, send_task(c, message.first(10))), condition::canceled);
    must_fail(co_await c.send(message.first(10), {.deadline = 5ms}), errc::deadline_exceeded);
    must_fail(co_await stopped_after(20, send_task(c, message)), condition::canceled);
    go = true;
    for (char i = 4; i < 50; ++i) must(co_await c.send(i));
    must(co_await c.receive<char>());
}

task<void> receives_when_told(runtime&, connection& c, const std::atomic<bool>& go) {
    must(co_await c.receive<char>()); // until then the peer's receives find nothing to receive
    must(co_await c.send(char{0}));
    while (!go && c.is_open()) co_await yield();
    for (char i = 0; i < 50; ++i) VERIFY_EQUAL(must(co_await c.receive<char>()), i);
    must(co_await c.send(char{0}));
    must(co_await c.closed());
}

/// A large message whose receive is stopped, and one whose send is, at every stage: the two ends may disagree on who
/// had it, but nothing hangs, nothing is written late, and those that follow arrive.
task<void> sends_large_and_stops(runtime&, connection& c) {
    buffer message(large / 4);
    fill(message.bytes(), 3);
    for (int turns = 0; turns < 40; turns += 1 + turns / 8) {
        must_be_canceled_or_done(co_await stopped_after(turns, send_task(c, message)));
        must(co_await c.send(turns));
        must(co_await c.receive<char>());
    }
}

task<void> receives_large_and_stops(runtime&, connection& c) {
    buffer message(large / 4);
    for (int turns = 0; turns < 40; turns += 1 + turns / 8) {
        for (;;) {
            fill_with(message.bytes(), std::byte{0xee});
            const auto got = co_await stopped_after(200 - turns, receive_task(c, message));
            if (!got) {
                must_fail(got, condition::canceled);
                continue;
            }
            if (got->size_bytes == sizeof turns) break;
            must_hold(message.bytes().first(got->size_bytes), 3);
            VERIFY_EQUAL(got->size_bytes, message.size_bytes());
        }
        must(co_await c.send(char{1}));
    }
    must(co_await c.closed());
}

pair_options with(std::uint32_t operations, std::uint32_t credits) {
    pair_options options;
    options.client.operations_in_flight = operations;
    options.client.receive_credits = options.server.receive_credits = credits;
    options.client.message_bytes_max = options.server.message_bytes_max = 4 << 20;
    return options;
}

} // namespace

CONFORMANCE_TEST("Cancel.a_deadline_passes_while_sent_in_the_middle_or_queued", p) {
    if (!p.peer_cpu_serves || !p.cancel_keeps_connection) SKIP("a deadline in flight breaks this connection");
    gate g;
    run_pair(
        p, [&g](runtime& rt, connection& c) { return deadlines_pass(rt, c, g); },
        [&g](runtime& rt, connection& c) { return serve_when_open(rt, c, g, large); }, with(4, 8));
}

CONFORMANCE_TEST("Cancel.the_default_deadline_is_for_operations_that_give_none", p) {
    if (!p.peer_cpu_serves || !p.cancel_keeps_connection) SKIP("a deadline in flight breaks this connection");
    gate g;
    pair_options options = with(4, 8);
    options.client.default_deadline = 10ms;
    options.server.default_deadline = 30s;
    run_pair(
        p, [&g](runtime& rt, connection& c) { return default_deadline_passes(rt, c, g); },
        [&g](runtime& rt, connection& c) { return serve_when_open(rt, c, g, 4096); }, options);
}

CONFORMANCE_TEST("Cancel.a_stop_at_every_stage_frees_the_memory_and_keeps_the_connection", p) {
    if (!p.cancel_keeps_connection) SKIP("a stop in flight breaks this connection");
    run_pair(p, stops_at_every_stage, shares, with(4, 8));
}

CONFORMANCE_TEST("Cancel.messages_that_wait_for_credit_or_a_message", p) {
    std::atomic<bool> go{false};
    run_pair(
        p, [&go](runtime& rt, connection& c) { return stops_messages(rt, c, go); },
        [&go](runtime& rt, connection& c) { return receives_when_told(rt, c, go); }, with(4, 4));
}

CONFORMANCE_TEST("Cancel.large_messages_at_every_stage_of_both_ends", p) {
    if (!p.cancel_keeps_connection) SKIP("a stop in flight breaks this connection");
    run_pair(p, sends_large_and_stops, receives_large_and_stops, with(4, 8));
}

} // namespace sluice::conformance
