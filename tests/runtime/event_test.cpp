#include <sluice/event.hpp>
#include <sluice/scope.hpp>

#include "tests/support/run.hpp"
#include "tests/support/stopped.hpp"

#include <string>

using sluice::event;
using sluice::result;
using sluice::task;
using sluice::testing::check_ok;
using sluice::testing::run;
using sluice::testing::run_stopped;
using sluice::testing::yields;

namespace {

task<void> pass(event& e, std::string& log, char name) {
    const auto r = co_await e.wait();
    log += r ? name : '-';
}

task<result<void>> wait_for(event& e) { co_return co_await e.wait(); }

} // namespace

TEST_CASE("Event.lets_all_pass_in_order_once_it_is_set_and_until_it_is_reset") {
    const auto body = []() -> task<void> {
        event e;
        std::string log;
        sluice::scope waiters;
        for (const char name : {'a', 'b', 'c'}) waiters.spawn(pass(e, log, name));
        co_await yields(3);
        CHECK(log.empty());
        e.set();
        e.set();
        check_ok(co_await waiters.join());
        CHECK(log == "abc");
        check_ok(co_await e.wait());
        CHECK(e.is_set());

        e.reset();
        waiters.spawn(pass(e, log, 'd'));
        co_await yields(3);
        CHECK(log == "abc");
        e.set();
        e.reset(); // those who waited pass all the same
        check_ok(co_await waiters.join());
        CHECK(log == "abcd");
        CHECK_FALSE(e.is_set());
    };
    run(body());
}

TEST_CASE("Event.can_start_set") {
    event e(true);
    CHECK(run(wait_for(e)));
}

TEST_CASE("Event.a_stop_takes_one_waiter_and_leaves_the_others") {
    const auto body = []() -> task<void> {
        event e;
        std::string log;
        sluice::scope stopped;
        sluice::scope kept;
        kept.spawn(pass(e, log, 'a'));
        stopped.spawn(pass(e, log, 'x'));
        kept.spawn(pass(e, log, 'b'));
        co_await yields(2);
        stopped.request_stop();
        check_ok(co_await stopped.join());
        e.set();
        check_ok(co_await kept.join());
        CHECK(log == "-ab");
    };
    run(body());
}

TEST_CASE("Event.is_canceled_while_it_waits_and_before") {
    event e;
    for (const bool before : {false, true}) {
        const auto r = run_stopped(wait_for(e), before);
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    e.set();
    CHECK_FALSE(run_stopped(wait_for(e), true));
}
