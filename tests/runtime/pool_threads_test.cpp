#include <sluice/executor.hpp>
#include <sluice/pool.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using sluice::memory_pool;
using sluice::pooled_buffer;
using sluice::purpose;

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

std::unique_ptr<memory_pool> make_pool() {
    auto made = memory_pool::create({.size_bytes = 2 * mib, .receive_reserve_bytes = 64 * kib});
    REQUIRE(made);
    return std::move(*made);
}

/// Waits until `n` tasks wait for memory of the pool.
void await_waiters(const memory_pool& pool, std::size_t n) {
    while (pool.occupancy().waiters != n) std::this_thread::yield();
}

/// A coroutine that starts when it is made ready and ends by itself.
struct background {
    struct promise_type : sluice::detail::promise_base {
        background get_return_object() noexcept {
            handle = std::coroutine_handle<promise_type>::from_promise(*this);
            return {this};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };
    promise_type* promise;
};

/// Leases on their way to a thread that gives them back.
struct foreign_releases {
    std::mutex mutex;
    std::vector<pooled_buffer> pending;
    std::atomic<bool> done{false};

    void push(pooled_buffer lease) {
        const std::lock_guard lock(mutex);
        pending.push_back(std::move(lease));
    }
    void run() {
        for (bool last = false; !last;) {
            last = done.load();
            std::vector<pooled_buffer> now;
            {
                const std::lock_guard lock(mutex);
                now.swap(pending);
            }
            now.clear();
            std::this_thread::yield();
        }
    }
};

struct tally {
    std::uint64_t granted = 0;
    std::uint64_t canceled = 0;
    std::uint64_t wrong = 0; // another error, other contents, or the wrong thread
    std::uint32_t ended = 0;
};

constexpr std::uint32_t round_size = 8;

background use_some(memory_pool& pool, std::size_t n, purpose use, std::uint64_t mark, foreign_releases& elsewhere, tally& out) {
    sluice::executor& home = co_await sluice::this_executor();
    auto got = co_await pool.allocate(n, use);
    if (sluice::executor::current() != &home) ++out.wrong;
    if (!got) {
        ++(got.error() == sluice::condition::canceled ? out.canceled : out.wrong);
    } else {
        ++out.granted;
        std::memcpy(got->data(), &mark, sizeof mark);
        std::memcpy(got->data() + n - sizeof mark, &mark, sizeof mark);
        for (std::uint64_t i = mark % 3; i > 0; --i) co_await sluice::yield();
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::memcpy(&first, got->data(), sizeof first);
        std::memcpy(&last, got->data() + n - sizeof last, sizeof last);
        if (first != mark || last != mark) ++out.wrong; // somebody else had the same memory
        if (mark % 2 == 0) elsewhere.push(std::move(*got));
    }
    ++out.ended;
}

/// Rounds of requests, half of which are stopped while other threads may be serving them.
sluice::task<void> compete(memory_pool& pool, std::uint32_t seed, int rounds, foreign_releases& elsewhere, tally& out) {
    sluice::executor& home = co_await sluice::this_executor();
    std::mt19937 random(seed);
    for (int round = 0; round < rounds; ++round) {
        std::array<std::optional<sluice::stop_source>, round_size> stops;
        const std::uint32_t target = out.ended + round_size;
        for (std::optional<sluice::stop_source>& stop : stops) {
            stop.emplace();
            const std::size_t n = 16 + random() % (random() % 4 == 0 ? 1500 * kib : 300 * kib);
            const purpose use = random() % 4 == 0 ? purpose::receive : purpose::general;
            const std::uint64_t mark = (std::uint64_t{seed} << 32) + random();
            const background b = use_some(pool, n, use, mark, elsewhere, out);
            b.promise->bind(home, stop->token());
            home.make_ready(*b.promise);
        }
        for (auto i = random() % 3; i > 0; --i) co_await sluice::yield();
        for (std::optional<sluice::stop_source>& stop : stops)
            if (random() % 2 == 0) stop->request_stop();
        while (out.ended != target) co_await sluice::yield();
    }
}

} // namespace

TEST_CASE("Pool.memory_given_back_on_a_thread_without_executor_resumes_the_waiter_on_its_own") {
    auto pool = make_pool();
    auto home = std::move(sluice::executor::create()).value();
    auto held = pool->try_allocate(mib);
    REQUIRE(held);
    std::thread other([&] {
        await_waiters(*pool, 1);
        held->reset();
    });
    const auto body = [](memory_pool& from) -> sluice::task<bool> {
        sluice::executor& here = co_await sluice::this_executor();
        const auto got = co_await from.allocate(mib);
        co_return got.has_value() && sluice::executor::current() == &here;
    };
    CHECK(sluice::sync_wait(*home, body(*pool)));
    other.join();
    CHECK(pool->occupancy().leases == 0);
    CHECK(pool->occupancy().waits == 1);
}

TEST_CASE("Pool.a_grant_of_another_thread_that_is_on_its_way_wins_over_a_stop") {
    auto pool = make_pool();
    auto home = std::move(sluice::executor::create()).value();
    sluice::stop_source source;
    foreign_releases unused;
    tally out;
    const auto body = [](memory_pool& from, sluice::stop_source& stop, foreign_releases& nowhere, tally& result) -> sluice::task<void> {
        sluice::executor& here = co_await sluice::this_executor();
        auto held = from.try_allocate(mib);
        const background b = use_some(from, mib, purpose::general, 1, nowhere, result);
        b.promise->bind(here, stop.token());
        here.make_ready(*b.promise);
        while (from.occupancy().waiters == 0) co_await sluice::yield();
        std::thread([&held] { held->reset(); }).join(); // granted and posted, but this task runs on
        stop.request_stop();
        while (result.ended == 0) co_await sluice::yield();
    };
    sluice::sync_wait(*home, body(*pool, source, unused, out));
    CHECK(out.granted == 1);
    CHECK(out.canceled == 0);
    CHECK(out.wrong == 0);
    CHECK(pool->occupancy().leases == 0);
}

TEST_CASE("Pool.a_stop_from_another_thread_ends_a_wait") {
    auto pool = make_pool();
    auto home = std::move(sluice::executor::create()).value();
    auto held = pool->try_allocate(mib);
    REQUIRE(held);
    sluice::stop_source source;
    std::thread other([&] {
        await_waiters(*pool, 1);
        source.request_stop();
    });
    const auto body = [](memory_pool& from) -> sluice::task<bool> {
        const auto got = co_await from.allocate(mib);
        co_return !got && got.error() == sluice::condition::canceled;
    };
    CHECK(sluice::sync_wait(*home, body(*pool), source.token()));
    other.join();
    CHECK(pool->occupancy().waiters == 0);
}

TEST_CASE("Pool.requests_stops_and_releases_of_many_threads_resume_each_task_once_and_lose_nothing") {
    constexpr int threads = 3;
    constexpr int rounds = 150;
    auto pool = make_pool();
    foreign_releases elsewhere;
    std::array<tally, threads> tallies;
    std::thread releaser([&] { elsewhere.run(); });
    std::vector<std::thread> workers;
    for (std::uint32_t i = 0; i < threads; ++i)
        workers.emplace_back([&, i] {
            auto home = std::move(sluice::executor::create()).value();
            sluice::sync_wait(*home, compete(*pool, i + 1, rounds, elsewhere, tallies[i]));
        });
    for (std::thread& each : workers) each.join();
    elsewhere.done = true;
    releaser.join();
    std::uint64_t granted = 0;
    std::uint64_t canceled = 0;
    for (const tally& each : tallies) {
        CHECK(each.ended == rounds * round_size);
        CHECK(each.granted + each.canceled == rounds * round_size);
        CHECK(each.wrong == 0);
        granted += each.granted;
        canceled += each.canceled;
    }
    CHECK(granted > 0);
    CHECK(canceled > 0);
    const sluice::pool_occupancy end = pool->occupancy();
    CHECK(end.waits > 0);
    CHECK(end.leases == 0);
    CHECK(end.used_bytes == 0);
    CHECK(end.waiters == 0);
    CHECK(pool->try_allocate(2 * mib, purpose::receive)); // and it is whole again
}
