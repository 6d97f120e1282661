#include <sluice/event.hpp>
#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/timeout.hpp>

#include "tests/support/run.hpp"
#include "tests/support/stopped.hpp"

#include <chrono>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

using namespace std::chrono_literals;
using sluice::errc;
using sluice::result;
using sluice::task;
using sluice::testing::check_error;
using sluice::testing::check_ok;
using sluice::testing::check_value;
using sluice::testing::make_executor;
using sluice::testing::run;
using sluice::testing::run_stopped;

namespace {

task<result<void>> sleeps(std::chrono::nanoseconds d) { co_return co_await sluice::sleep_for(d); }

task<result<int>> number(int value) {
    const auto r = co_await sluice::nop();
    if (!r) co_return r.error();
    co_return value;
}

task<int> ignores_stops(int value) {
    for (int i = 0; i < 5; ++i) static_cast<void>(co_await sluice::sleep_for(1ms));
    co_return value;
}

task<result<int>> waits_for(sluice::event& e, errc instead) {
    const auto r = co_await e.wait();
    if (!r) co_return instead;
    co_return 1;
}

} // namespace

TEST_CASE("Timeout.returns_what_the_work_returns_in_time") {
    const auto body = []() -> task<void> {
        const auto r = co_await sluice::timeout(1h, number(5));
        REQUIRE(r);
        CHECK(*r == 5);
        check_ok(co_await sluice::timeout(1h, sleeps(1ms)));
    };
    run(body());
}

TEST_CASE("Timeout.ends_work_that_takes_too_long") {
    const auto body = []() -> task<void> {
        const auto start = std::chrono::steady_clock::now();
        const auto r = co_await sluice::timeout(5ms, sleeps(1h));
        CHECK(std::chrono::steady_clock::now() - start >= 5ms);
        REQUIRE_FALSE(r);
        CHECK(r.error().code() == errc::deadline_exceeded);
        CHECK(r.error() == sluice::condition::timed_out);
    };
    run(body());
}

TEST_CASE("Timeout.cancels_an_operation_in_the_kernel") {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const auto home = make_executor();
    const auto watch = [](int watched) -> task<result<std::uint32_t>> {
        co_return co_await sluice::readiness(watched, POLLIN);
    };
    const auto r = sluice::sync_wait(*home, sluice::timeout(1ms, watch(fd)));
    REQUIRE_FALSE(r);
    CHECK(r.error().code() == errc::deadline_exceeded);
    CHECK(home->stats().in_flight == 0);
    close(fd);
}

TEST_CASE("Timeout.takes_the_longest_and_the_shortest_durations") {
    const auto body = []() -> task<void> {
        check_value(co_await sluice::timeout(std::chrono::nanoseconds::max(), number(1)), 1);
        check_value(co_await sluice::timeout(std::chrono::hours::max(), number(2)), 2);
        check_value(co_await sluice::timeout(std::chrono::duration<double>(1e300), number(3)), 3);
        check_error(co_await sluice::timeout(0s, sleeps(1h)), sluice::condition::timed_out);
        check_error(co_await sluice::timeout(-1s, sleeps(1h)), sluice::condition::timed_out);
        check_error(co_await sluice::timeout(std::chrono::hours::min(), sleeps(1h)), sluice::condition::timed_out);
        check_error(co_await sluice::timeout(std::chrono::nanoseconds::min(), sleeps(1h)), sluice::condition::timed_out);
        check_ok(co_await sluice::sleep_for(std::chrono::hours::min()));
        check_error(co_await sluice::timeout(1ms, sleeps(std::chrono::nanoseconds::max())), sluice::condition::timed_out);
    };
    run(body());
}

TEST_CASE("Timeout.with_no_time_left_what_needs_no_wait_succeeds") {
    const auto at_once = []() -> task<result<int>> { co_return 4; };
    const auto body = [](task<result<int>> work) -> task<void> {
        const auto r = co_await sluice::timeout(-1s, std::move(work));
        REQUIRE(r);
        CHECK(*r == 4);
    };
    run(body(at_once()));
}

TEST_CASE("Timeout.other_errors_of_the_work_are_kept") {
    const auto body = []() -> task<void> {
        sluice::event never;
        const auto r = co_await sluice::timeout(1ms, waits_for(never, errc::peer_lost));
        REQUIRE_FALSE(r);
        CHECK(r.error().code() == errc::peer_lost);
    };
    run(body());
}

TEST_CASE("Timeout.work_that_returns_no_result_is_waited_for_and_dropped") {
    const auto body = []() -> task<void> {
        const auto late = co_await sluice::timeout(0s, ignores_stops(1));
        REQUIRE_FALSE(late);
        CHECK(late.error().code() == errc::deadline_exceeded);
        const auto in_time = co_await sluice::timeout(1h, ignores_stops(2));
        REQUIRE(in_time);
        CHECK(*in_time == 2);
        check_ok(co_await sluice::timeout(1h, sluice::testing::yields(2)));
    };
    run(body());
}

TEST_CASE("Timeout.rethrows_exceptions_of_the_work") {
    const auto throws = []() -> task<int> {
        static_cast<void>(co_await sluice::sleep_for(1h));
        throw std::runtime_error("late");
    };
    const auto body = [](task<int> work) -> task<void> {
        bool caught = false;
        try {
            static_cast<void>(co_await sluice::timeout(1ms, std::move(work)));
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
    };
    run(body(throws()));
}

TEST_CASE("Timeout.a_stop_from_outside_is_a_cancel_and_no_timeout") {
    for (const bool before : {false, true}) {
        const auto r = run_stopped(sluice::timeout(1h, sleeps(1h)), before);
        REQUIRE_FALSE(r);
        CHECK(r.error().code() == errc::canceled);
    }
}

TEST_CASE("Timeout.nests_and_the_shorter_one_wins") {
    const auto body = []() -> task<void> {
        const auto inner = co_await sluice::timeout(1h, sluice::timeout(1ms, sleeps(1h)));
        CHECK(inner.error().code() == errc::deadline_exceeded);
        const auto outer = co_await sluice::timeout(1ms, sluice::timeout(1h, sleeps(1h)));
        CHECK(outer.error().code() == errc::deadline_exceeded);
    };
    run(body());
}

TEST_CASE("Timeout.ten_thousand_race_their_work") {
    // Work and limit are due together, so both orders occur; nothing may be lost or stay behind.
    const auto one = [](int& succeeded, int& expired) -> task<void> {
        const auto r = co_await sluice::timeout(std::chrono::microseconds(100), sleeps(std::chrono::microseconds(100)));
        ++(r ? succeeded : expired);
    };
    const auto home = make_executor();
    const auto body = [](auto each) -> task<void> {
        int succeeded = 0;
        int expired = 0;
        sluice::scope all;
        for (int i = 0; i < 10'000; ++i) all.spawn(each(succeeded, expired));
        check_ok(co_await all.join());
        CHECK(succeeded + expired == 10'000);
    };
    sluice::sync_wait(*home, body(one));
}
