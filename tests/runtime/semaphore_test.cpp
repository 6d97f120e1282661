#include <sluice/scope.hpp>
#include <sluice/semaphore.hpp>
#include <sluice/timeout.hpp>

#include "tests/support/run.hpp"
#include "tests/support/stopped.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using sluice::result;
using sluice::semaphore;
using sluice::task;
using sluice::testing::check_ok;
using sluice::testing::run;
using sluice::testing::run_stopped;
using sluice::testing::yields;

namespace {

task<void> take(semaphore& s, std::size_t n, std::string& log, char name, int hold) {
    const auto p = co_await s.acquire(n);
    log += p ? name : '-';
    co_await yields(hold);
}

task<result<void>> wait_for(semaphore& s, std::size_t n) {
    const auto p = co_await s.acquire(n);
    if (!p) co_return p.error();
    co_return {};
}

} // namespace

TEST_CASE("Semaphore.hands_out_what_it_has_and_gets_it_back") {
    const auto body = []() -> task<void> {
        semaphore s(3);
        {
            const auto p = co_await s.acquire(2);
            REQUIRE(p);
            CHECK(p->count() == 2);
            CHECK(s.available() == 1);
            CHECK(s.try_acquire(2).count() == 0);
            auto one = s.try_acquire();
            CHECK(one.count() == 1);
            CHECK(s.available() == 0);
            one.release();
            one.release();
            CHECK(s.available() == 1);
        }
        CHECK(s.available() == 3);
        {
            auto moved = s.try_acquire(1);
            auto target = s.try_acquire(2);
            target = std::move(moved);
            CHECK(s.available() == 2);
        }
        s.try_acquire(3).detach();
        CHECK(s.available() == 0);
        s.release(3);
        check_ok(co_await s.acquire(0));
        CHECK(s.available() == 3);
    };
    run(body());
}

TEST_CASE("Semaphore.never_admits_more_than_it_has") {
    const auto user = [](semaphore& s, int& inside, int& most) -> task<void> {
        const auto p = co_await s.acquire();
        most = std::max(most, ++inside);
        co_await yields(3);
        --inside;
    };
    const auto body = [](auto use) -> task<void> {
        semaphore s(4);
        int inside = 0;
        int most = 0;
        sluice::scope users;
        for (int i = 0; i < 100; ++i) users.spawn(use(s, inside, most));
        check_ok(co_await users.join());
        CHECK(most == 4);
        CHECK(inside == 0);
        CHECK(s.available() == 4);
    };
    run(body(user));
}

TEST_CASE("Semaphore.serves_in_the_order_of_asking_even_who_asks_for_many") {
    const auto body = []() -> task<void> {
        semaphore s(2);
        std::string log;
        sluice::scope users;
        users.spawn(take(s, 1, log, 'a', 5));
        users.spawn(take(s, 2, log, 'b', 5)); // waits for a, and c for b, although one permit is free
        users.spawn(take(s, 1, log, 'c', 5));
        users.spawn(take(s, 1, log, 'd', 5));
        co_await yields(3);
        CHECK(log == "a");
        CHECK(s.available() == 1);
        CHECK(s.try_acquire().count() == 0); // no overtaking
        check_ok(co_await users.join());
        CHECK(log == "abcd");
        CHECK(s.available() == 2);
    };
    run(body());
}

TEST_CASE("Semaphore.a_stop_ends_the_wait_and_lets_those_behind_pass") {
    const auto body = []() -> task<void> {
        semaphore s(1);
        std::string log;
        sluice::scope greedy;
        sluice::scope modest;
        greedy.spawn(take(s, 2, log, 'x', 0));
        co_await yields(2);
        modest.spawn(take(s, 1, log, 'b', 0));
        co_await yields(2);
        CHECK(log.empty());
        greedy.request_stop();
        check_ok(co_await modest.join());
        check_ok(co_await greedy.join());
        CHECK(log == "-b");
        CHECK(s.available() == 1);
    };
    run(body());
}

TEST_CASE("Semaphore.success_wins_over_a_stop_that_comes_after_the_grant") {
    const auto body = []() -> task<void> {
        semaphore s(0);
        std::string log;
        sluice::scope users;
        users.spawn(take(s, 1, log, 'a', 0));
        co_await yields(2);
        s.release();
        users.request_stop();
        CHECK(s.available() == 0); // it is on its way
        check_ok(co_await users.join());
        CHECK(log == "a");
        CHECK(s.available() == 1);
    };
    run(body());
}

TEST_CASE("Semaphore.is_canceled_while_it_waits_and_before") {
    semaphore s(1);
    for (const bool before : {false, true}) {
        const auto r = run_stopped(wait_for(s, 2), before);
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    const auto r = run_stopped(wait_for(s, 1), true);
    REQUIRE_FALSE(r);
    CHECK(s.available() == 1);
}

TEST_CASE("Semaphore.works_with_a_timeout") {
    const auto body = []() -> task<void> {
        semaphore s(0);
        const auto r = co_await sluice::timeout(1ms, wait_for(s, 1));
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::timed_out);
        s.release();
        CHECK(s.available() == 1);
    };
    run(body());
}
