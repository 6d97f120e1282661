#include <sluice/blocking.hpp>
#include <sluice/channel.hpp>
#include <sluice/detail/frame_allocator.hpp>
#include <sluice/event.hpp>
#include <sluice/mutex.hpp>
#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/semaphore.hpp>
#include <sluice/sleep.hpp>
#include <sluice/timeout.hpp>
#include <sluice/when_all.hpp>
#include <sluice/when_any.hpp>

#include "tests/support/heap.hpp"
#include "tests/support/run.hpp"

#include <chrono>
#include <cstdint>
#include <new>

using namespace std::chrono_literals;
using sluice::result;
using sluice::task;
using sluice::testing::heap_allocations;
using sluice::testing::make_executor;
using sluice::testing::yields;

namespace {

/// Runs `make()` to warm up, and again to count.
template <class Make>
std::uint64_t heap_calls_once_warm(Make make) {
    const auto home = make_executor();
    for (int i = 0; i < 3; ++i) sluice::sync_wait(*home, make());
    if (sluice::detail::this_thread_frame_stats().recycled == 0) SKIP("frames are not recycled in this build");
    const std::uint64_t before = heap_allocations();
    sluice::sync_wait(*home, make());
    return heap_allocations() - before;
}

task<void> one_nop() { static_cast<void>(co_await sluice::nop()); }

task<result<void>> wait_for(sluice::event& e) { co_return co_await e.wait(); }

} // namespace

TEST_CASE("Heap.the_count_sees_an_allocation") {
    const std::uint64_t before = heap_allocations();
    ::operator delete(::operator new(8));
    CHECK(heap_allocations() - before == 1);
    const auto make = []() -> task<void> {
        ::operator delete(::operator new(8));
        co_return;
    };
    const std::uint64_t calls = heap_calls_once_warm(make); // it may skip the case: not from inside CHECK
    CHECK(calls == 1);
}

TEST_CASE("Heap.operations_and_sleeps_touch_it_not_once") {
    const auto make = []() -> task<void> {
        for (int i = 0; i < 1000; ++i) {
            static_cast<void>(co_await sluice::nop());
            static_cast<void>(co_await sluice::sleep_for(1us));
        }
    };
    const std::uint64_t calls = heap_calls_once_warm(make); // it may skip the case: not from inside CHECK
    CHECK(calls == 0);
}

TEST_CASE("Heap.spawns_touch_it_not_once") {
    const auto make = []() -> task<void> {
        sluice::scope s;
        for (int i = 0; i < 100; ++i) {
            for (int k = 0; k < 100; ++k) s.spawn(one_nop());
            static_cast<void>(co_await s.join());
        }
    };
    const std::uint64_t calls = heap_calls_once_warm(make); // it may skip the case: not from inside CHECK
    CHECK(calls == 0);
}

TEST_CASE("Heap.waits_for_channels_semaphores_mutexes_and_events_touch_it_not_once") {
    struct side {
        static task<void> send(sluice::channel<int>& c) {
            for (int i = 0; i < 1000; ++i) static_cast<void>(co_await c.send(i));
        }
        static task<void> receive(sluice::channel<int>& c, sluice::semaphore& s, sluice::mutex& m, sluice::event& e) {
            for (int i = 0; i < 1000; ++i) {
                static_cast<void>(co_await c.receive());
                const auto permit = co_await s.acquire();
                const auto guard = co_await m.lock();
                co_await sluice::yield();
            }
            e.set();
        }
    };
    const auto home = make_executor();
    sluice::channel<int> c(2); // a channel allocates when it is made
    const auto body = [](sluice::channel<int>& shared) -> task<void> {
        sluice::semaphore s(1);
        sluice::mutex m;
        sluice::event e;
        sluice::scope both;
        both.spawn(side::send(shared));
        both.spawn(side::send(shared));
        both.spawn(side::receive(shared, s, m, e));
        both.spawn(side::receive(shared, s, m, e));
        static_cast<void>(co_await e.wait());
        static_cast<void>(co_await both.join());
    };
    for (int i = 0; i < 3; ++i) sluice::sync_wait(*home, body(c));
    if (sluice::detail::this_thread_frame_stats().recycled == 0) SKIP("frames are not recycled in this build");
    const std::uint64_t before = heap_allocations();
    sluice::sync_wait(*home, body(c));
    CHECK(heap_allocations() - before == 0);
}

TEST_CASE("Heap.combinators_and_blocking_calls_touch_it_not_once") {
    const auto make = []() -> task<void> {
        sluice::event never;
        for (int i = 0; i < 100; ++i) {
            co_await sluice::when_all(one_nop(), yields(2));
            const auto first = co_await sluice::when_any(wait_for(never), wait_for(never), sluice::timeout(10us, wait_for(never)));
            static_cast<void>(first);
            static_cast<void>(co_await sluice::run_blocking([i] { return i; }));
        }
    };
    const std::uint64_t calls = heap_calls_once_warm(make); // it may skip the case: not from inside CHECK
    CHECK(calls == 0);
}
