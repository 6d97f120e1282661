#include "tests/conformance/pair.hpp"

#include <atomic>
#include <cstring>

namespace sluice::conformance {

namespace {

std::uint64_t word_at(const buffer& memory, std::size_t index) {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory.data())[index]).load();
}
void set_word(const buffer& memory, std::size_t index, std::uint64_t value) {
    std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory.data())[index]).store(value);
}

task<void> serves_words(runtime&, connection& c) {
    buffer words(4096);
    set_word(words, 0, 40);
    set_word(words, 1, UINT64_MAX);
    set_word(words, 2, 7);
    auto shared = must(co_await c.share(words, access::remote_atomic));
    must(co_await c.send(shared.description()));
    must(co_await c.receive<char>());
    if (!c.capabilities().atomics) {
        must(co_await c.closed());
        co_return;
    }
    VERIFY_EQUAL(word_at(words, 0), 42U);
    VERIFY_EQUAL(word_at(words, 1), 1U);
    VERIFY_EQUAL(word_at(words, 2), 9U);
    VERIFY_EQUAL(word_at(words, 3), 0U);
    VERIFY_EQUAL(word_at(words, 511), 5U);
    must(co_await c.closed());
}

task<void> adds_and_swaps(runtime&, connection& c) {
    const remote_region words = must(co_await c.receive<remote_region>());
    if (!c.capabilities().atomics) {
        must_name(must_fail(co_await c.fetch_add(words.first(8), 2), condition::unsupported), "atomics");
        must_fail(co_await c.compare_swap(words.first(8), 1, 2), condition::unsupported);
        must(co_await c.send(char{1}));
        co_return;
    }
    VERIFY_EQUAL(must(co_await c.fetch_add(words.subview(0, 8), 2)), 40U);
    VERIFY_EQUAL(must(co_await c.fetch_add(words.subview(0, 8), 0)), 42U);
    VERIFY_EQUAL(must(co_await c.fetch_add(words.subview(8, 8), 2)), UINT64_MAX); // wraps
    VERIFY_EQUAL(must(co_await c.compare_swap(words.subview(16, 8), 8, 9)), 7U);  // not equal: stays
    VERIFY_EQUAL(must(co_await c.compare_swap(words.subview(16, 8), 7, 9)), 7U);
    VERIFY_EQUAL(must(co_await c.compare_swap(words.subview(16, 8), 7, 1)), 9U);
    VERIFY_EQUAL(must(co_await c.fetch_add(words.subview(4088, 8), 5)), 0U);
    VERIFY_EQUAL(c.stats().atomic.operations, 7U);
    VERIFY_EQUAL(c.stats().atomic.failures, 0U);
    must(co_await c.send(char{1}));
}

task<result<void>> adds(connection& c, remote_region words, int times) {
    for (int i = 0; i < times; ++i) {
        auto before = co_await c.fetch_add(words.subview(0, 8), 1);
        if (!before) co_return std::move(before).error();
    }
    co_return result<void>{};
}

/// Increments by compare and swap, as another client would that knows no fetch_add.
task<result<void>> swaps(connection& c, remote_region words, int times) {
    std::uint64_t seen = 0;
    for (int i = 0; i < times;) {
        auto before = co_await c.compare_swap(words.subview(8, 8), seen, seen + 1);
        if (!before) co_return std::move(before).error();
        if (*before == seen) ++i;
        seen = *before == seen ? seen + 1 : *before;
    }
    co_return result<void>{};
}

/// Three connections of the runtime's two executors count in the same words, and the owner does so too.
task<void> many_count(runtime&, connection& c) {
    const remote_region words = must(co_await c.receive<remote_region>());
    scope running;
    for (int i = 0; i < 20 && c.capabilities().atomics; ++i) running.spawn(adds(c, words, 50));
    for (int i = 0; i < 4 && c.capabilities().atomics; ++i) running.spawn(swaps(c, words, 25));
    must(co_await running.join());
    must(co_await c.send(char{1}));
    must(co_await c.receive<char>());
}

task<void> owner_counts_too(runtime&, connection& c, const provider& p) {
    buffer words(4096);
    auto shared = must(co_await c.share(words, access::remote_atomic));
    must(co_await c.send(shared.description()));
    const std::uint64_t own = p.atomic_with_cpu ? 1000 : 0;
    for (std::uint64_t i = 0; i < own; ++i) {
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(words.data())).fetch_add(1);
        co_await yield();
    }
    must(co_await c.receive<char>());
    if (c.capabilities().atomics) {
        VERIFY_EQUAL(word_at(words, 0), own + 1000U);
        VERIFY_EQUAL(word_at(words, 1), 100U);
    }
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

} // namespace

CONFORMANCE_TEST("Atomic.fetch_add_and_compare_swap_give_the_value_before", p) {
    run_pair(p, adds_and_swaps, serves_words);
}

CONFORMANCE_TEST("Atomic.concurrent_sums_are_right", p) {
    run_pair(p, many_count, [&p](runtime& rt, connection& c) { return owner_counts_too(rt, c, p); });
}

} // namespace sluice::conformance
