#include <sluice/event.hpp>
#include <sluice/operation.hpp>
#include <sluice/sleep.hpp>
#include <sluice/when_any.hpp>

#include "tests/support/run.hpp"
#include "tests/support/stopped.hpp"

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
using sluice::testing::run_stopped;
using sluice::testing::yields;

namespace {

task<int> after(int turns, int value) {
    co_await yields(turns);
    co_return value;
}

task<std::string> text_after(int turns, const char* value) {
    co_await yields(turns);
    co_return value;
}

task<result<int>> sleeps_long(int& joined) {
    const auto r = co_await sluice::sleep_for(1h);
    co_await yields(3); // a loser may take its time
    ++joined;
    if (!r) co_return r.error();
    co_return 0;
}

task<result<int>> result_after(int turns, int value) {
    co_await yields(turns);
    co_return value;
}

task<int> throws_after(int turns) {
    co_await yields(turns);
    throw std::runtime_error("thrown");
}

} // namespace

TEST_CASE("When_any.returns_the_first_to_end_with_its_index") {
    const auto body = []() -> task<void> {
        const auto first = co_await sluice::when_any(after(5, 10), after(1, 20), after(3, 30));
        CHECK(first.index == 1);
        CHECK(first.value == 20);
        const auto nothing = co_await sluice::when_any(yields(4), yields(2));
        CHECK(nothing.index == 1);
        CHECK(nothing.value == std::monostate{});
    };
    run(body());
}

TEST_CASE("When_any.of_different_types_returns_a_variant") {
    const auto body = []() -> task<void> {
        const auto first = co_await sluice::when_any(after(5, 10), text_after(1, "won"), yields(9));
        CHECK(first.index == 1);
        REQUIRE(first.value.index() == 1);
        CHECK(std::get<std::string>(first.value) == "won");
        const auto other = co_await sluice::when_any(after(5, 10), yields(1));
        CHECK(other.index == 1);
        CHECK(std::holds_alternative<std::monostate>(other.value));
    };
    run(body());
}

TEST_CASE("When_any.stops_and_joins_the_losers") {
    const auto body = []() -> task<void> {
        int joined = 0;
        const auto first = co_await sluice::when_any(sleeps_long(joined), result_after(1, 8), sleeps_long(joined));
        CHECK(first.index == 1);
        CHECK(*first.value == 8);
        CHECK(joined == 2);
    };
    run(body());
}

TEST_CASE("When_any.takes_a_vector_of_tasks") {
    const auto body = []() -> task<void> {
        std::vector<task<int>> tasks;
        for (int i = 0; i < 100; ++i) tasks.push_back(after(i == 42 ? 1 : 50, i));
        const auto first = co_await sluice::when_any(std::move(tasks));
        CHECK(first.index == 42);
        CHECK(first.value == 42);
        std::vector<task<void>> silent;
        silent.push_back(yields(1));
        const auto last = co_await sluice::when_any(std::move(silent));
        CHECK(last.index == 0);
    };
    run(body());
}

TEST_CASE("When_any.rethrows_the_first_and_drops_what_losers_throw") {
    const auto body = []() -> task<void> {
        bool caught = false;
        try {
            co_await sluice::when_any(after(5, 1), throws_after(1));
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        const auto first = co_await sluice::when_any(after(1, 1), throws_after(3));
        CHECK(first.index == 0);
    };
    run(body());
}

TEST_CASE("When_any.a_stop_reaches_all") {
    for (const bool before : {false, true}) {
        int joined = 0;
        const auto first = run_stopped(sluice::when_any(sleeps_long(joined), sleeps_long(joined)), before);
        REQUIRE_FALSE(first.value);
        CHECK(first.value.error().code() == errc::canceled);
        CHECK(joined == 2);
    }
}

TEST_CASE("When_any.ten_thousand_times_an_operation_against_an_event") {
    const auto wait = [](sluice::event& e) -> task<result<void>> { co_return co_await e.wait(); };
    const auto operate = []() -> task<result<void>> { co_return co_await sluice::nop(); };
    const auto body = [](auto waits, auto operates) -> task<void> {
        sluice::event never;
        int won = 0;
        for (int i = 0; i < 10'000; ++i) {
            const auto first = co_await sluice::when_any(waits(never), operates());
            if (first.index == 1 && first.value) ++won;
        }
        CHECK(won == 10'000);
    };
    const auto home = make_executor();
    sluice::sync_wait(*home, body(wait, operate));
    CHECK(home->stats().in_flight == 0);
}
