#include <sluice/when_all.hpp>

#include "tests/conformance/pair.hpp"

#include <catch2/catch_test_macros.hpp>

#include <optional>
#include <vector>

namespace sluice::conformance {

namespace {

using namespace std::chrono_literals;

constexpr auto read_and_write = access::remote_read | access::remote_write;
constexpr std::size_t large = std::size_t{8} << 20;

task<result<void>> closed_task(connection& c) { co_return co_await c.closed(); }
task<result<void>> close_task(connection& c) { co_return co_await c.close(); }

task<void> closes(runtime&, connection& c) {
    VERIFY(c.is_open());
    must(co_await c.send(char{1}));
    must(co_await c.close());
    VERIFY(!c.is_open());
    must(co_await c.close()); // idempotent
    must(co_await c.closed());
    buffer memory(8);
    must_fail(co_await c.send(memory), condition::closed);
    must_fail(co_await c.receive(memory), condition::closed);
    must_fail(co_await c.read(remote_region{.size_bytes = 8}, memory), condition::closed);
    must_fail(co_await c.write(remote_region{.size_bytes = 8}, memory), condition::closed);
    must_fail(co_await c.fetch_add(remote_region{.size_bytes = 8}, 1), condition::closed);
}

/// A receive that waits ends; what had arrived before is still received.
task<void> is_closed(runtime&, connection& c) {
    buffer memory(8);
    auto waiting = co_await when_all(closed_task(c), receive_task(c, memory), receive_task(c, memory));
    must(std::get<0>(waiting));
    VERIFY_EQUAL(must(std::get<1>(waiting)).size_bytes, 1U);
    must_fail(std::get<2>(waiting), errc::closed);
    VERIFY(!c.is_open());
    must_fail(co_await c.send(memory), condition::closed);
    must(co_await c.closed()); // as often as one likes
    must(co_await c.close());
}

task<void> sends_and_closes(runtime&, connection& c) {
    buffer message(3000);
    for (std::uint64_t i = 0; i < 10; ++i) {
        fill(message.bytes(), i);
        must(co_await c.send(message));
    }
    must(co_await c.close());
}

task<void> receives_after_the_end(runtime&, connection& c) {
    must(co_await c.closed());
    buffer message(3000);
    for (std::uint64_t i = 0; i < 10; ++i) {
        VERIFY_EQUAL(must(co_await c.receive(message)).size_bytes, 3000U);
        must_hold(message.bytes(), i);
    }
    must_fail(co_await c.receive(message), errc::closed);
}

task<void> closes_at_once(runtime&, connection& c) {
    must(co_await c.send(char{1}));
    must(co_await c.receive<char>());
    auto both = co_await when_all(close_task(c), close_task(c), closed_task(c));
    must(std::get<0>(both));
    must(std::get<1>(both));
    must(std::get<2>(both));
}

task<void> closes_with_transfers_in_flight(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes);
    buffer message(8);
    scope running;
    std::vector<std::optional<result<void>>> ended(40);
    for (std::size_t i = 0; i < ended.size(); ++i)
        running.spawn(detail::store(move_task(i % 2 == 1, c, theirs, mine), ended[i]));
    std::optional<result<received>> received_end;
    running.spawn(detail::store(receive_task(c, message), received_end));
    for (int i = 0; i < 10; ++i) co_await yield();
    must(co_await c.close());
    must(co_await running.join());
    for (const auto& r : ended)
        if (!*r) must_fail(*r, errc::closed);
    must_fail(*received_end, errc::closed);
}

task<void> serves(runtime&, connection& c) {
    buffer memory(large);
    fill(memory.bytes(), 1);
    co_await share_until_closed(c, memory, read_and_write);
}

/// Leaves by destroying its connection while the peer is in the middle of transfers with it.
task<void> vanishes(runtime&, connection& c) {
    buffer memory(large);
    fill(memory.bytes(), 1);
    auto shared = must(co_await c.share(memory, read_and_write));
    must(co_await c.send(shared.description()));
    co_await until_used(c, 2);
    c = connection();
    fill_with(memory.bytes(), std::byte{0x5a});
    for (int i = 0; i < 100; ++i) co_await yield();
    must_be_all(memory.bytes(), std::byte{0x5a});
}

task<result<void>> use_until_broken(connection& c, remote_region theirs, region_view mine, bool writes) {
    for (;;) {
        auto done = co_await move_task(writes, c, theirs, mine);
        if (!done) co_return done;
    }
}

/// All operations end, with one and the same cause, which closed() gives too.
task<void> is_left(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes);
    buffer message(8);
    std::vector<task<result<void>>> uses;
    for (int i = 0; i < 8; ++i) uses.push_back(use_until_broken(c, theirs, mine, i % 2 == 1));
    std::optional<result<received>> received_end;
    scope running;
    running.spawn(detail::store(receive_task(c, message), received_end));
    const auto ended = co_await when_all(std::move(uses));
    must(co_await running.join());
    const error cause = must_fail(co_await c.closed(), condition::closed);
    for (const auto& r : ended) VERIFY_EQUAL(must_fail(r, condition::closed).message(), cause.message());
    VERIFY_EQUAL(must_fail(*received_end, condition::closed).message(), cause.message());
    VERIFY(!c.is_open());
    must_fail(co_await c.send(message), condition::closed);
}

task<void> leaves_without_a_word(runtime&, connection& c) {
    must(co_await c.receive<char>());
    c = connection();
}

task<void> waits_for_the_word(runtime&, connection& c) {
    const auto sent = co_await c.send(char{1});
    if (!sent) must_fail(sent, condition::closed); // it left before its device had said that this arrived
    const auto ended = co_await c.closed();
    must_fail(ended, condition::closed); // not a goodbye
}

task<void> stops_waiting(runtime&, connection& c) {
    must_fail(co_await stopped_after(5, closed_task(c)), condition::canceled);
    VERIFY(c.is_open());
    must(co_await c.send(char{1}));
    must(co_await c.receive<char>());
}

task<void> answers(runtime&, connection& c) {
    must(co_await c.receive<char>());
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

/// The peer's executor does not run, so no goodbye comes back: close is bounded by the peer timeout, or by a stop.
task<void> closes_a_silent_peer(runtime&, connection& c, gate& g) {
    const gate::opener at_the_end(g);
    must(co_await c.send(char{1}));
    co_await g.until_held();
    const auto ended = co_await c.close();
    if (!ended) must_fail(ended, condition::closed);
    VERIFY(!c.is_open());
}

task<void> falls_silent(runtime&, connection& c, gate& g) {
    must(co_await c.receive<char>());
    g.hold();
    static_cast<void>(co_await c.closed());
}

pair_options ends_itself() {
    pair_options options;
    options.ends_by_itself = true;
    return options;
}

} // namespace

CONFORMANCE_TEST("Close.ends_both_sides_and_refuses_what_comes_later", p) { run_pair(p, closes, is_closed, ends_itself()); }

CONFORMANCE_TEST("Close.what_was_sent_before_is_still_received", p) {
    run_pair(p, sends_and_closes, receives_after_the_end, ends_itself());
}

CONFORMANCE_TEST("Close.of_both_sides_at_once", p) {
    for (int i = 0; i < 5; ++i) run_pair(p, closes_at_once, closes_at_once, ends_itself());
}

CONFORMANCE_TEST("Close.ends_own_operations_in_flight", p) {
    run_pair(p, closes_with_transfers_in_flight, serves, ends_itself());
}

CONFORMANCE_TEST("Close.a_connection_destroyed_under_the_peers_transfers_breaks_them_with_one_cause", p) {
    for (int i = 0; i < 3; ++i) run_pair(p, is_left, vanishes, ends_itself());
}

CONFORMANCE_TEST("Close.leaving_without_goodbye_is_an_error_for_the_peer", p) {
    run_pair(p, leaves_without_a_word, waits_for_the_word, ends_itself());
    run_pair(p, waits_for_the_word, leaves_without_a_word, ends_itself());
}

CONFORMANCE_TEST("Close.waiting_for_the_end_can_be_stopped", p) { run_pair(p, stops_waiting, answers); }

CONFORMANCE_TEST("Close.does_not_wait_for_a_silent_peer_longer_than_its_timeout", p) {
    if (!p.peer_cpu_serves) SKIP("no wait for the peer's program");
    gate g;
    pair_options options = ends_itself();
    options.client.peer_timeout = 1s;
    run_pair(
        p, [&g](runtime& rt, connection& c) { return closes_a_silent_peer(rt, c, g); },
        [&g](runtime& rt, connection& c) { return falls_silent(rt, c, g); }, options);
}

} // namespace sluice::conformance
