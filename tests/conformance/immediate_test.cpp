#include "tests/conformance/pair.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace sluice::conformance {

namespace {

constexpr std::size_t slot = 5000;
constexpr std::uint32_t count = 200;

/// A ring of slots: the immediate says which one was written, and the writer waits for nothing.
task<void> writes_slots(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(slot);
    for (std::uint32_t i = 0; i < count; ++i) {
        fill(mine.bytes(), i);
        must(co_await c.write_with_immediate(theirs.subview(i * slot, slot), mine, i));
    }
    must(co_await c.write_with_immediate(theirs.first(0), mine.first(0), 0xffffffff)); // only the immediate
    VERIFY_EQUAL(c.stats().write.operations, count + 1);
    VERIFY_EQUAL(c.stats().write.bytes(c.path()), slot * count);
    must(co_await c.receive<char>());
}

task<void> receives_slots(runtime&, connection& c) {
    buffer memory(slot * count);
    auto shared = must(co_await c.share(memory, access::remote_write));
    must(co_await c.send(shared.description()));
    buffer unused(1);
    for (std::uint32_t i = 0; i < count; ++i) {
        const received got = must(co_await c.receive(unused));
        VERIFY(got.immediate.has_value());
        VERIFY_EQUAL(*got.immediate, i);
        must_hold(memory.bytes().subspan(i * slot, slot), i); // visible once the immediate is received
    }
    VERIFY_EQUAL(must(co_await c.receive(unused.first(0))).immediate.value(), 0xffffffff);
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

/// Immediates and messages come in the order in which they were started.
task<void> mixes(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(slot);
    scope running;
    std::vector<std::optional<result<void>>> ended(count);
    const auto write_immediate = [](connection& on, remote_view to, const_region_view from,
                                    std::uint32_t value) -> task<result<void>> {
        co_return co_await on.write_with_immediate(to, from, value);
    };
    for (std::uint32_t i = 0; i < count; ++i) {
        running.spawn(detail::store(i % 3 == 0 ? write_immediate(c, theirs.first(slot), mine, i)
                                               : send_task(c, mine.first(i % 3 == 1 ? 100 + i : 4500 + i % 500)),
                                    ended[i]));
    }
    must(co_await running.join());
    for (auto& r : ended) must(std::move(*r));
    must(co_await c.receive<char>());
}

task<void> receives_mixed(runtime&, connection& c) {
    buffer memory(slot);
    auto shared = must(co_await c.share(memory, access::remote_write));
    must(co_await c.send(shared.description()));
    buffer message(slot);
    for (std::uint32_t i = 0; i < count; ++i) {
        const received got = must(co_await c.receive(message));
        VERIFY_EQUAL(got.immediate.has_value(), i % 3 == 0);
        if (got.immediate) VERIFY_EQUAL(*got.immediate, i);
        else VERIFY_EQUAL(got.size_bytes, i % 3 == 1 ? 100 + i : 4500 + i % 500);
    }
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

/// A write that has completed is seen by a read, and by whoever gets a message that was sent afterwards.
task<void> writes_then_tells(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes);
    buffer back(theirs.size_bytes);
    for (std::uint32_t i = 0; i < 20; ++i) {
        fill(mine.bytes(), i);
        must(co_await c.write(theirs, mine));
        must(co_await c.read(theirs, back));
        must_hold(back.bytes(), i);
        must(co_await c.send(i));
        must(co_await c.receive<char>());
    }
}

task<void> looks_when_told(runtime&, connection& c) {
    buffer memory(std::size_t{3} << 20);
    auto shared = must(co_await c.share(memory, access::remote_read | access::remote_write));
    must(co_await c.send(shared.description()));
    for (std::uint32_t i = 0; i < 20; ++i) {
        VERIFY_EQUAL(must(co_await c.receive<std::uint32_t>()), i);
        must_hold(memory.bytes(), i);
        must(co_await c.send(char{1}));
    }
    must(co_await c.closed());
}

pair_options few_credits() {
    pair_options options;
    options.server.receive_credits = 5;
    return options;
}

} // namespace

CONFORMANCE_TEST("Immediate.arrives_after_the_bytes_it_stands_for", p) {
    run_pair(p, writes_slots, receives_slots, few_credits());
}

CONFORMANCE_TEST("Immediate.keeps_its_place_among_messages", p) { run_pair(p, mixes, receives_mixed, few_credits()); }

CONFORMANCE_TEST("Ordering.a_completed_write_is_seen_by_reads_and_later_messages", p) {
    run_pair(p, writes_then_tells, looks_when_told);
}

} // namespace sluice::conformance
