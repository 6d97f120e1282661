#include <sluice/operation.hpp>
#include <sluice/sleep.hpp>
#include <sluice/when_all.hpp>

#include "tests/support/run.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

using namespace std::chrono_literals;
using sluice::errc;
using sluice::result;
using sluice::task;
using sluice::testing::make_executor;
using sluice::testing::run;

namespace {

task<int> number(int value) {
    static_cast<void>(co_await sluice::nop());
    co_return value;
}

task<std::unique_ptr<std::string>> text(const char* value) {
    co_await sluice::yield();
    co_return std::make_unique<std::string>(value);
}

task<void> log(std::vector<int>& order, int value, int turns) {
    co_await sluice::testing::yields(turns);
    order.push_back(value);
}

task<result<int>> fails() {
    co_await sluice::yield();
    co_return errc::peer_lost;
}

task<int> throws(const char* what, int turns) {
    co_await sluice::testing::yields(turns);
    throw std::runtime_error(what);
}

task<result<void>> sleeps_long(int& canceled) {
    const auto r = co_await sluice::sleep_for(1h);
    if (!r) ++canceled;
    co_return r;
}

} // namespace

TEST_CASE("When_all.returns_a_tuple_in_the_order_of_its_arguments") {
    const auto body = []() -> task<void> {
        std::vector<int> order;
        const auto all = co_await sluice::when_all(number(1), text("two"), log(order, 3, 0));
        CHECK(std::get<0>(all) == 1);
        CHECK(*std::get<1>(all) == "two");
        CHECK(std::get<2>(all) == std::monostate{});
        CHECK(order == std::vector{3});
    };
    run(body());
}

TEST_CASE("When_all.runs_its_tasks_side_by_side") {
    const auto body = []() -> task<void> {
        std::vector<int> order;
        co_await sluice::when_all(log(order, 1, 3), log(order, 2, 1), log(order, 3, 2));
        CHECK(order == std::vector{2, 3, 1});
    };
    run(body());
}

TEST_CASE("When_all.of_nothing_ends_at_once") {
    const auto body = []() -> task<void> {
        const auto none = co_await sluice::when_all();
        CHECK(std::tuple_size_v<decltype(none)> == 0);
        const auto empty = co_await sluice::when_all(std::vector<task<int>>());
        CHECK(empty.empty());
        co_await sluice::when_all(std::vector<task<void>>());
    };
    run(body());
}

TEST_CASE("When_all.takes_a_vector_of_tasks") {
    const auto body = []() -> task<void> {
        std::vector<task<int>> tasks;
        for (int i = 0; i < 1000; ++i) tasks.push_back(number(i));
        const std::vector<int> values = co_await sluice::when_all(std::move(tasks));
        REQUIRE(values.size() == 1000);
        for (int i = 0; i < 1000; ++i) CHECK(values[static_cast<std::size_t>(i)] == i);

        std::vector<int> order;
        std::vector<task<void>> logs;
        for (int i = 0; i < 4; ++i) logs.push_back(log(order, i, 4 - i));
        co_await sluice::when_all(std::move(logs));
        CHECK(order == std::vector{3, 2, 1, 0});
    };
    run(body());
}

TEST_CASE("When_all.an_error_value_does_not_stop_the_others") {
    const auto body = []() -> task<void> {
        const auto all = co_await sluice::when_all(fails(), number(7));
        REQUIRE_FALSE(std::get<0>(all));
        CHECK(std::get<0>(all).error().code() == errc::peer_lost);
        CHECK(std::get<1>(all) == 7);
    };
    run(body());
}

TEST_CASE("When_all.an_exception_stops_and_joins_the_others_and_the_first_one_is_rethrown") {
    const auto body = []() -> task<void> {
        int canceled = 0;
        std::string what;
        try {
            co_await sluice::when_all(throws("second", 3), sleeps_long(canceled), throws("first", 1), sleeps_long(canceled));
        } catch (const std::runtime_error& e) {
            what = e.what();
        }
        CHECK(what == "first");
        CHECK(canceled == 2);

        what.clear();
        std::vector<task<int>> tasks;
        tasks.push_back(throws("later", 2));
        tasks.push_back(throws("sooner", 1));
        try {
            co_await sluice::when_all(std::move(tasks));
        } catch (const std::runtime_error& e) {
            what = e.what();
        }
        CHECK(what == "sooner");
    };
    run(body());
}

TEST_CASE("When_all.a_stop_reaches_every_task") {
    const auto home = make_executor();
    const auto body = [](int& canceled) -> task<int> {
        const auto all = co_await sluice::when_all(sleeps_long(canceled), sleeps_long(canceled), number(3));
        CHECK_FALSE(std::get<0>(all));
        CHECK_FALSE(std::get<1>(all));
        co_return std::get<2>(all);
    };
    SECTION("in flight") {
        sluice::stop_source source;
        int canceled = 0;
        const auto stop_soon = [](sluice::stop_source& s) -> task<int> {
            co_await sluice::testing::yields(3);
            s.request_stop();
            co_return 0;
        };
        const auto both = [](task<int> a, task<int> b) -> task<int> {
            const auto all = co_await sluice::when_all(std::move(a), std::move(b));
            co_return std::get<0>(all);
        };
        CHECK(sluice::sync_wait(*home, both(body(canceled), stop_soon(source)), source.token()) == 3);
        CHECK(canceled == 2);
    }
    SECTION("before it starts") {
        sluice::stop_source source;
        source.request_stop();
        int canceled = 0;
        sluice::sync_wait(*home, body(canceled), source.token());
        CHECK(canceled == 2);
    }
}

TEST_CASE("When_all.nests") {
    struct tree {
        static task<int> count(int depth) {
            if (depth == 0) {
                co_await sluice::yield();
                co_return 1;
            }
            const auto both = co_await sluice::when_all(count(depth - 1), count(depth - 1));
            co_return std::get<0>(both) + std::get<1>(both);
        }
    };
    CHECK(run(tree::count(10)) == 1024);
}
