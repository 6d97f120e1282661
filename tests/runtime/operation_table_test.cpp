#include "tests/runtime/operation_recipes.hpp"
#include "tests/support/death.hpp"
#include "tests/support/temporary_directory.hpp"

#include "runtime/engine.hpp"
#include "runtime/operation_table.hpp"

#include <sluice/executor.hpp>
#include <sluice/scope.hpp>
#include <sluice/sync_wait.hpp>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <optional>
#include <string>

// Every test here runs once per row of the operation table, so a new operation is tested, or fails for want of a
// recipe, before anything uses it.

using sluice::opcode;
using sluice::detail::operation_info;
using sluice::detail::operation_table;
using sluice::testing::open_descriptors;
using sluice::testing::raw_operation;
using sluice::testing::world;

namespace {

std::unique_ptr<sluice::executor> make_executor(sluice::executor_options options = {}) {
    return std::move(sluice::executor::create(options).value());
}

struct ending {
    std::optional<sluice::result<std::int32_t>> result;
    int completions = 0;
    int resumptions = 0;
};

sluice::task<void> await_raw(sluice::request what, ending& end) {
    raw_operation op(what);
    end.result = co_await op;
    end.completions = op.completions();
    ++end.resumptions;
}

/// Awaits `what` and requests a stop when the kernel has it.
sluice::task<void> await_and_stop(sluice::request what, ending& end) {
    sluice::scope children;
    children.spawn(await_raw(what, end));
    for (int turns = 0; turns < 3; ++turns) static_cast<void>(co_await sluice::nop());
    children.request_stop();
    static_cast<void>(co_await children.join());
}

sluice::task<void> await_many(std::vector<sluice::request> requests, std::vector<ending>& ends) {
    sluice::scope children;
    for (std::size_t i = 0; i < requests.size(); ++i) children.spawn(await_raw(requests[i], ends[i]));
    static_cast<void>(co_await children.join());
}

} // namespace

TEST_CASE("Operation_table.every_operation_succeeds") {
    for (const operation_info& row : operation_table) {
        INFO(row.name);
        auto home = make_executor();
        if (!home->ring().supports(row.code)) continue;
        world w(*home);
        ending end;
        sluice::sync_wait(*home, await_raw(w.working(row.code), end));
        INFO((*end.result ? "success" : end.result->error().message()));
        REQUIRE(end.result->has_value());
        CHECK(end.completions == row.completions);
        world::clean_up(row.code, **end.result);
        if (row.code != opcode::close) w.close_leftovers();
    }
}

TEST_CASE("Operation_table.a_stopped_token_makes_no_request") {
    for (const operation_info& row : operation_table) {
        INFO(row.name);
        auto home = make_executor();
        world w(*home);
        const auto descriptors = open_descriptors();
        const auto what = w.working(row.code);
        sluice::stop_source source;
        source.request_stop();
        const auto started = home->stats().operations_started;
        ending end;
        sluice::sync_wait(*home, await_raw(what, end), source.token());
        REQUIRE_FALSE(end.result->has_value());
        CHECK(end.result->error() == sluice::condition::canceled);
        CHECK(end.resumptions == 1);
        CHECK(end.completions == 0);
        CHECK(home->stats().operations_started == started);
        CHECK(home->stats().in_flight == 0);
        w.close_leftovers();
        CHECK(open_descriptors() <= descriptors + 1); // a recipe may have made one that the world keeps
    }
}

TEST_CASE("Operation_table.the_kernels_error_reaches_the_caller") {
    for (const operation_info& row : operation_table) {
        INFO(row.name);
        auto home = make_executor();
        if (!home->ring().supports(row.code)) continue;
        world w(*home);
        int expected = 0;
        ending end;
        sluice::sync_wait(*home, await_raw(w.failing(row.code, expected), end));
        REQUIRE_FALSE(end.result->has_value());
        INFO(end.result->error().message());
        CHECK(end.result->error() == std::error_code(expected, std::generic_category()));
        CHECK(end.resumptions == 1);
        CHECK(home->stats().in_flight == 0);
    }
}

TEST_CASE("Operation_table.a_stop_in_flight_ends_what_would_wait_for_ever") {
    const auto descriptors = open_descriptors();
    for (const operation_info& row : operation_table) {
        if (!row.can_block) continue;
        INFO(row.name);
        auto home = make_executor();
        if (!home->ring().supports(row.code)) continue;
        {
            world w(*home);
            const auto what = w.blocking(row.code);
            const auto before = open_descriptors();
            ending end;
            sluice::sync_wait(*home, await_and_stop(what, end));
            REQUIRE(end.result);
            REQUIRE_FALSE(end.result->has_value());
            INFO(end.result->error().message());
            CHECK(end.result->error() == sluice::condition::canceled);
            CHECK(end.resumptions == 1);
            CHECK(end.completions >= 1);
            CHECK(home->stats().in_flight == 0);
            CHECK(open_descriptors() == before);
        }
    }
    CHECK(open_descriptors() == descriptors);
}

TEST_CASE("Operation_table.a_full_ring_delays_and_loses_nothing") {
    constexpr std::size_t count = 200;
    for (const operation_info& row : operation_table) {
        INFO(row.name);
        auto home = make_executor({.submission_entries = 2, .completion_entries = 16});
        if (!home->ring().supports(row.code)) continue;
        world w(*home);
        std::vector<sluice::request> requests;
        for (std::size_t i = 0; i < count; ++i) requests.push_back(w.working(row.code));
        std::vector<ending> ends(count);
        const auto before = home->stats();
        sluice::sync_wait(*home, await_many(requests, ends));
        std::size_t good = 0;
        std::size_t once = 0;
        for (const ending& end : ends) {
            once += end.resumptions == 1 ? 1U : 0U;
            if (!end.result || !*end.result) continue;
            ++good;
            world::clean_up(row.code, **end.result);
        }
        CHECK(good == count);
        CHECK(once == count);
        CHECK(home->stats().operations_delayed > before.operations_delayed);
        CHECK(home->stats().operations_started == before.operations_started + count);
        CHECK(home->stats().in_flight == 0);
    }
}

TEST_CASE("Operation_table.a_stop_while_delayed_ends_at_once") {
    for (const operation_info& row : operation_table) {
        if (!row.can_block) continue;
        INFO(row.name);
        auto home = make_executor({.submission_entries = 2, .completion_entries = 16});
        if (!home->ring().supports(row.code)) continue;
        world w(*home);
        std::vector<sluice::request> requests(40, w.blocking(row.code));
        if (row.code == opcode::connect) // a socket can be in one connect only
            for (auto& request : requests) request = w.blocking(row.code);
        std::vector<ending> ends(requests.size());
        const auto body = [](const std::vector<sluice::request>& all, std::vector<ending>& into) -> sluice::task<void> {
            sluice::scope children;
            for (std::size_t i = 0; i < all.size(); ++i) children.spawn(await_raw(all[i], into[i]));
            for (int turns = 0; turns < 3; ++turns) co_await sluice::yield();
            children.request_stop();
            static_cast<void>(co_await children.join());
        };
        sluice::sync_wait(*home, body(requests, ends));
        std::size_t canceled = 0;
        for (const ending& end : ends)
            if (end.result && !*end.result && end.result->error() == sluice::condition::canceled) ++canceled;
        CHECK(canceled == ends.size());
        CHECK(home->stats().operations_started < ends.size());
        CHECK(home->stats().in_flight == 0);
    }
}

namespace {
opcode dying = opcode::nop;
} // namespace

TEST_CASE("Operation_table.a_frame_destroyed_in_flight_names_its_operation") {
    for (const operation_info& row : operation_table) {
        INFO(row.name);
        dying = row.code;
        const auto end = sluice::testing::die_in_child(+[] {
            auto home = make_executor();
            world w(*home);
            ending unused;
            auto work = await_raw(w.working(dying), unused);
            bool done = false;
            std::exception_ptr exception;
            auto root = sluice::detail::run_root(work, exception);
            root.handle.promise().done = &done;
            root.handle.promise().bind(*home, {});
            root.handle.resume();
            work = {};
        });
        INFO(end.errors);
        CHECK(end.signal == SIGABRT);
        CHECK(end.errors.find("sluice: broken contract: a coroutine was destroyed while its operation '" +
                              std::string(row.name) + "'") != std::string::npos);
    }
}
