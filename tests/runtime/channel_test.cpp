#include <sluice/channel.hpp>
#include <sluice/scope.hpp>

#include "tests/support/run.hpp"
#include "tests/support/stopped.hpp"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

using sluice::channel;
using sluice::result;
using sluice::task;
using sluice::testing::check_ok;
using sluice::testing::check_value;
using sluice::testing::run;
using sluice::testing::run_stopped;
using sluice::testing::yields;

namespace {

task<void> send_range(channel<int>& c, int from, int to) {
    for (int i = from; i < to; ++i) check_ok(co_await c.send(i));
}

task<void> receive_all(channel<int>& c, std::vector<int>& into) {
    for (;;) {
        const auto r = co_await c.receive();
        if (!r) {
            CHECK(r.error() == sluice::condition::closed);
            co_return;
        }
        into.push_back(*r);
    }
}

task<void> close_after(sluice::scope& senders, channel<int>& c) {
    check_ok(co_await senders.join());
    c.close();
}

task<result<void>> send_one(channel<int>& c, int value) { co_return co_await c.send(value); }
task<result<int>> receive_one(channel<int>& c) { co_return co_await c.receive(); }

task<void> log_send(channel<int>& c, int value, std::string& log) {
    const auto r = co_await c.send(value);
    log += r ? std::to_string(value) : r.error() == sluice::condition::closed ? "c" : "-";
}

task<void> log_receive(channel<int>& c, std::string& log, char name) {
    const auto r = co_await c.receive();
    log += name;
    log += r ? std::to_string(*r) : r.error() == sluice::condition::closed ? "c" : "-";
}

} // namespace

TEST_CASE("Channel.keeps_order_at_every_capacity") {
    const auto body = [](std::size_t capacity) -> task<void> {
        channel<int> c(capacity);
        std::vector<int> got;
        sluice::scope all;
        sluice::scope senders;
        senders.spawn(send_range(c, 0, 1000));
        all.spawn(close_after(senders, c));
        all.spawn(receive_all(c, got));
        check_ok(co_await all.join());
        std::vector<int> expected(1000);
        std::iota(expected.begin(), expected.end(), 0);
        CHECK(got == expected);
        CHECK(c.size() == 0);
        CHECK(c.capacity() == capacity);
    };
    for (const std::size_t capacity : {0U, 1U, 2U, 7U, 2000U}) {
        INFO("capacity " << capacity);
        run(body(capacity));
    }
}

TEST_CASE("Channel.delivers_each_value_once_among_many_senders_and_receivers") {
    const auto body = []() -> task<void> {
        channel<int> c(3);
        std::vector<std::vector<int>> got(5);
        sluice::scope all;
        sluice::scope senders;
        for (int i = 0; i < 10; ++i) senders.spawn(send_range(c, i * 100, i * 100 + 100));
        for (auto& into : got) all.spawn(receive_all(c, into));
        all.spawn(close_after(senders, c));
        check_ok(co_await all.join());
        std::vector<int> seen(1000);
        for (const auto& part : got) {
            CHECK_FALSE(part.empty()); // fair: nobody starves
            for (const int value : part) ++seen[static_cast<std::size_t>(value)];
        }
        CHECK(seen == std::vector<int>(1000, 1));
    };
    run(body());
}

TEST_CASE("Channel.a_rendezvous_send_ends_when_the_value_is_taken") {
    const auto body = []() -> task<void> {
        channel<int> c(0);
        std::string log;
        sluice::scope senders;
        CHECK_FALSE(c.try_send(1)); // nobody is there
        senders.spawn(log_send(c, 5, log));
        co_await yields(3);
        CHECK(log.empty());
        CHECK(c.size() == 0);
        const auto r = co_await c.receive();
        REQUIRE(r);
        CHECK(*r == 5);
        check_ok(co_await senders.join());
        CHECK(log == "5");
    };
    run(body());
}

TEST_CASE("Channel.try_send_and_try_receive_never_wait") {
    channel<std::unique_ptr<int>> c(1);
    CHECK_FALSE(c.try_receive());
    CHECK(c.try_send(std::make_unique<int>(1)));
    auto second = std::make_unique<int>(2);
    CHECK_FALSE(c.try_send(std::move(second)));
    REQUIRE(second); // untouched
    auto first = c.try_receive();
    REQUIRE(first);
    CHECK(**first == 1);
    c.close();
    c.close();
    CHECK(c.closed());
    CHECK_FALSE(c.try_send(std::move(second)));
    CHECK(second);
}

TEST_CASE("Channel.close_keeps_what_is_inside_and_ends_waiting_senders") {
    const auto body = []() -> task<void> {
        channel<int> c(2);
        std::string log;
        sluice::scope senders;
        for (int i = 1; i <= 4; ++i) senders.spawn(log_send(c, i, log));
        co_await yields(3);
        c.close();
        check_ok(co_await senders.join());
        CHECK(log == "12cc");
        check_value(co_await c.receive(), 1);
        check_value(co_await c.receive(), 2);
        const auto end = co_await c.receive();
        REQUIRE_FALSE(end);
        CHECK(end.error().code() == sluice::errc::closed);
        const auto late = co_await c.send(9);
        REQUIRE_FALSE(late);
        CHECK(late.error().code() == sluice::errc::closed);
    };
    run(body());
}

TEST_CASE("Channel.close_ends_waiting_receivers") {
    const auto body = []() -> task<void> {
        channel<int> c(2);
        std::string log;
        sluice::scope receivers;
        receivers.spawn(log_receive(c, log, 'a'));
        receivers.spawn(log_receive(c, log, 'b'));
        co_await yields(3);
        CHECK(c.try_send(7)); // goes to the one who waited longest
        CHECK(c.size() == 0);
        c.close();
        check_ok(co_await receivers.join());
        CHECK(log == "a7bc");
    };
    run(body());
}

TEST_CASE("Channel.a_stopped_waiter_loses_no_value_of_others") {
    const auto body = []() -> task<void> {
        channel<int> c(1);
        std::string log;
        sluice::scope stopped;
        sluice::scope kept;
        stopped.spawn(log_receive(c, log, 'x'));
        co_await yields(2);
        kept.spawn(log_receive(c, log, 'a'));
        co_await yields(2);
        stopped.request_stop();
        check_ok(co_await stopped.join());
        CHECK(c.try_send(1));
        check_ok(co_await kept.join());
        CHECK(log == "x-a1");

        log.clear();
        sluice::scope late;
        CHECK(c.try_send(2));
        late.spawn(log_send(c, 3, log));
        co_await yields(2);
        kept.spawn(log_send(c, 4, log));
        co_await yields(2);
        late.request_stop();
        check_ok(co_await late.join());
        check_value(co_await c.receive(), 2);
        check_value(co_await c.receive(), 4);
        check_ok(co_await kept.join());
        CHECK(log == "-4");
    };
    run(body());
}

TEST_CASE("Channel.success_wins_over_a_stop_that_comes_after_the_delivery") {
    const auto body = []() -> task<void> {
        channel<int> c(1);
        std::string log;
        sluice::scope receivers;
        receivers.spawn(log_receive(c, log, 'a'));
        co_await yields(2);
        CHECK(c.try_send(1));
        receivers.request_stop();
        check_ok(co_await receivers.join());
        CHECK(log == "a1");
    };
    run(body());
}

TEST_CASE("Channel.is_canceled_while_it_waits_and_before") {
    channel<int> c(1);
    for (const bool before : {false, true}) {
        const auto r = run_stopped(receive_one(c), before);
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    CHECK(c.try_send(1));
    for (const bool before : {false, true}) {
        const auto r = run_stopped(send_one(c, 2), before);
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    CHECK_FALSE(run_stopped(receive_one(c), true)); // although there is a value,
    CHECK(c.size() == 1);                           // which stays
}
