#include <sluice/blocking.hpp>
#include <sluice/when_all.hpp>

#include "net/background.hpp"
#include "runtime/joined_call.hpp"
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

/// A call that begins, and ends when it is let.
struct gate {
    std::atomic<bool> begun = false;
    std::atomic<bool> open = false;
    std::atomic<int> ended = 0;

    void pass() {
        begun = true;
        begun.notify_all();
        open.wait(false);
        ++ended;
    }
    void let() {
        open = true;
        open.notify_all();
    }
};

sluice::net::background pass(gate& g, bool& resumed) {
    auto call = sluice::detail::run_joined([&g] { g.pass(); });
    co_await call;
    resumed = true;
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

TEST_CASE("Run_joined.a_coroutine_destroyed_while_its_call_runs_waits_for_it") {
    const auto home = make_executor();
    gate g;
    bool resumed = false;
    auto work = pass(g, resumed);
    work.start(*home);
    const auto body = [](gate& at) -> task<void> {
        while (!at.begun) co_await sluice::yield();
    };
    sluice::sync_wait(*home, body(g));
    std::thread opener([&g] { g.let(); });
    work.end(*home);
    CHECK(g.ended == 1);
    opener.join();
    sluice::sync_wait(*home, sluice::testing::yields(600));
    CHECK_FALSE(resumed);
}

TEST_CASE("Run_joined.a_call_that_has_not_begun_never_does") {
    const auto home = make_executor();
    gate busy;
    bool resumed = false;
    std::vector<sluice::net::background> all;
    for (int i = 0; i < 4; ++i) all.push_back(pass(busy, resumed));
    gate late;
    bool late_resumed = false;
    auto last = pass(late, late_resumed);
    for (auto& each : all) each.start(*home);
    last.start(*home);
    sluice::sync_wait(*home, sluice::testing::yields(5)); // all are asked for, and four threads are taken
    last.end(*home);
    CHECK_FALSE(late.begun);
    busy.let();
    for (auto& each : all) each.end(*home);
    CHECK(busy.ended <= 4);
    CHECK_FALSE(late_resumed);
}

TEST_CASE("Run_joined.what_ended_but_was_not_resumed_yet_is_dropped") {
    for (int round = 0; round < 200; ++round) {
        const auto home = make_executor();
        gate g;
        g.let();
        bool resumed = false;
        auto work = pass(g, resumed);
        work.start(*home);
        sluice::sync_wait(*home, sluice::testing::yields(round % 4));
        work.end(*home);
        CHECK((resumed ? g.ended == 1 : g.ended <= 1));
    }
}
