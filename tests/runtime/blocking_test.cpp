#include <sluice/blocking.hpp>
#include <sluice/when_all.hpp>

#include "tests/support/run.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using sluice::task;
using sluice::testing::make_executor;
using sluice::testing::run;

namespace {

/// Counts who is inside, and holds them there until `wanted` are.
struct meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t inside = 0;
    std::size_t most = 0;
    std::set<std::thread::id> threads;

    void attend(std::size_t wanted) {
        std::unique_lock lock(mutex);
        most = std::max(most, ++inside);
        threads.insert(std::this_thread::get_id());
        changed.notify_all();
        changed.wait(lock, [&] { return most >= wanted; });
        --inside;
    }
};

task<void> attend(meeting& m, std::size_t wanted) {
    co_await sluice::run_blocking([&m, wanted] { m.attend(wanted); });
}

} // namespace

TEST_CASE("Run_blocking.returns_what_the_call_returns_and_resumes_on_the_executor") {
    const auto body = []() -> task<void> {
        const auto here = std::this_thread::get_id();
        const auto there = co_await sluice::run_blocking([] { return std::this_thread::get_id(); });
        CHECK(there != here);
        CHECK(std::this_thread::get_id() == here);
        auto text = co_await sluice::run_blocking([] { return std::make_unique<std::string>("moved"); });
        CHECK(*text == "moved");
        int called = 0;
        co_await sluice::run_blocking([&called] { ++called; });
        CHECK(called == 1);
        const auto move_only = std::make_unique<int>(5);
        int* const address = move_only.get();
        const int five = co_await sluice::run_blocking([address] { return *address; });
        CHECK(five == 5);
    };
    run(body());
}

TEST_CASE("Run_blocking.rethrows_what_the_call_throws") {
    const auto body = []() -> task<std::string> {
        try {
            co_await sluice::run_blocking([]() -> int { throw std::runtime_error("from the helper"); });
        } catch (const std::runtime_error& e) {
            co_return e.what();
        }
        co_return "nothing";
    };
    CHECK(run(body()) == "from the helper");
}

TEST_CASE("Run_blocking.uses_four_threads_at_most_and_serves_all_calls") {
    meeting m;
    const auto body = [](meeting& shared) -> task<void> {
        std::vector<task<void>> calls;
        for (int i = 0; i < 100; ++i) calls.push_back(attend(shared, 4)); // ends only when four run at once
        co_await sluice::when_all(std::move(calls));
    };
    run(body(m));
    CHECK(m.most == 4);
    CHECK(m.threads.size() <= 4);
    CHECK(m.inside == 0);
}

TEST_CASE("Run_blocking.runs_under_a_stopped_token_and_is_waited_for") {
    const auto home = make_executor();
    sluice::stop_source source;
    source.request_stop();
    const auto body = []() -> task<int> { co_return co_await sluice::run_blocking([] { return 9; }); };
    CHECK(sluice::sync_wait(*home, body(), source.token()) == 9);
}

TEST_CASE("Run_blocking.helper_threads_take_no_signals") {
    const auto body = []() -> task<bool> {
        co_return co_await sluice::run_blocking([] {
            sigset_t blocked;
            return pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0 && sigismember(&blocked, SIGTERM) == 1;
        });
    };
    CHECK(run(body()));
    sigset_t blocked;
    REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0);
    CHECK(sigismember(&blocked, SIGTERM) == 0);
}

TEST_CASE("Run_blocking.serves_executors_on_two_threads") {
    std::atomic<int> sum{0};
    const auto calls = [](std::atomic<int>& total) -> task<void> {
        for (int i = 0; i < 2000; ++i) total += co_await sluice::run_blocking([] { return 1; });
    };
    const auto body = [&] {
        auto home = sluice::executor::create();
        if (home) sluice::sync_wait(**home, calls(sum));
    };
    std::thread other(body);
    body();
    other.join();
    CHECK(sum == 4000);
}
