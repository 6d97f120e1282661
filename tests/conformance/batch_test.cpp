#include "tests/conformance/pair.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

namespace sluice::conformance {

namespace {

constexpr std::size_t part = 10'000;
constexpr std::size_t parts = 64;

task<void> submits(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer source(part * parts);
    buffer target(part * parts);
    fill(source.bytes(), 9);

    batch empty = c.batch();
    VERIFY_EQUAL(empty.size(), 0U);
    must(co_await empty.submit());

    batch writes = c.batch();
    for (std::size_t i = 0; i < parts; ++i) writes.write(theirs.subview(i * part, part), source.subview(i * part, part));
    VERIFY_EQUAL(writes.size(), parts);
    must(co_await writes.submit());

    batch reads = c.batch();
    for (std::size_t i = 0; i < parts; ++i) reads.read(theirs.subview(i * part, part), target.subview(i * part, part));
    reads.send(source.first(100));
    reads.send(source.first(200));
    must(co_await reads.submit());
    must_hold(target.bytes(), 9);
    VERIFY_EQUAL(c.stats().write.operations, parts);
    VERIFY_EQUAL(c.stats().read.operations, parts);
    VERIFY_EQUAL(c.stats().send.operations, 2U);
    must(co_await c.receive<char>());
}

task<void> takes_part(runtime&, connection& c) {
    buffer memory(part * parts);
    buffer message(200);
    auto shared = must(co_await c.share(memory, access::remote_read | access::remote_write));
    must(co_await c.send(shared.description()));
    VERIFY_EQUAL(must(co_await c.receive(message)).size_bytes, 100U);
    VERIFY_EQUAL(must(co_await c.receive(message)).size_bytes, 200U);
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

/// The first error in order of the calls counts, and the others were attempted.
task<void> submits_wrong_ones(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer source(4096);
    buffer target(4096);
    fill(source.bytes(), 4);
    remote_region past_the_end = theirs;
    past_the_end.address += theirs.size_bytes;
    remote_region no_key = theirs;
    no_key.key ^= 1;

    batch mixed = c.batch();
    mixed.write(theirs, source);
    mixed.write(past_the_end, source);
    mixed.read(no_key, target);
    must_fail(co_await mixed.submit(), condition::out_of_range);

    batch other_order = c.batch();
    other_order.read(no_key, target);
    other_order.write(past_the_end, source);
    other_order.read(theirs, target);
    must_fail(co_await other_order.submit(), condition::access_denied);
    must_hold(target.bytes(), 4);
}

task<void> shares(runtime&, connection& c) {
    buffer memory(4096);
    co_await share_until_closed(c, memory, access::remote_read | access::remote_write);
}

task<result<void>> submit_task(batch& b) { co_return co_await b.submit(); }

task<void> stops_one(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer source(4096);
    buffer message(8);
    batch many = c.batch();
    for (int i = 0; i < 50; ++i) many.write(theirs, source);
    many.send(message); // the peer's only credit
    many.send(message); // waits for ever
    must_fail(co_await stopped_after(30, submit_task(many)), condition::canceled);
    VERIFY(c.is_open());
}

task<void> shares_and_receives_nothing(runtime&, connection& c) {
    buffer memory(4096);
    co_await share_until_closed(c, memory, access::remote_write);
}

} // namespace

CONFORMANCE_TEST("Batch.does_all_its_operations_with_one_completion", p) { run_pair(p, submits, takes_part); }

CONFORMANCE_TEST("Batch.gives_the_first_error_and_attempts_the_rest", p) { run_pair(p, submits_wrong_ones, shares); }

CONFORMANCE_TEST("Batch.a_stop_ends_those_that_wait", p) {
    if (!p.cancel_keeps_connection) SKIP("a stop in flight breaks this connection");
    pair_options options;
    options.server.receive_credits = 1;
    run_pair(p, stops_one, shares_and_receives_nothing, options);
}

} // namespace sluice::conformance
