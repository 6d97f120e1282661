#include "tests/support/death.hpp"

#include <sluice/executor.hpp>
#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/stop.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

using namespace std::chrono_literals;

namespace {

std::unique_ptr<sluice::executor> make_executor() { return std::move(sluice::executor::create()).value(); }

sluice::task<void> nothing() { co_return; }

/// Waits for a pipe that nobody writes to.
sluice::task<void> wait_forever(int fd) { static_cast<void>(co_await sluice::readiness(fd, POLLIN)); }

sluice::task<void> sleep_an_hour() { static_cast<void>(co_await sluice::sleep_for(1h)); }

sluice::task<void> await_twice() {
    auto work = nothing();
    co_await std::move(work);
    co_await std::move(work); // NOLINT(bugprone-use-after-move): the point of the test
}

sluice::task<void> await_moved_from() {
    auto work = nothing();
    const auto taken = std::move(work);
    co_await std::move(work); // NOLINT(bugprone-use-after-move): the point of the test
}

sluice::task<void> run_inside(sluice::executor& home) {
    sluice::sync_wait(home, nothing());
    co_return;
}

/// Leaves a child behind that has begun, and ends without joining it.
sluice::task<void> abandon_a_child() {
    sluice::scope children;
    children.spawn(sleep_an_hour());
    co_await sluice::yield{};
}

int silent_pipe() {
    int ends[2];
    if (pipe(ends) != 0) _exit(3);
    return ends[0];
}

} // namespace

TEST_CASE("Executor.a_second_one_on_a_thread_stops_the_process") {
    CHECK_BREAKS_CONTRACT("executor: this thread has one already", const auto first = make_executor();
                          const auto second = make_executor());
}

TEST_CASE("Executor.running_it_on_another_thread_stops_the_process") {
    CHECK_BREAKS_CONTRACT("executor: run on another thread than the one that made it",
                          const auto home = make_executor();
                          std::thread([&] { home->run(); }).join());
}

TEST_CASE("Executor.running_it_from_inside_a_task_stops_the_process") {
    CHECK_BREAKS_CONTRACT("executor: run from inside one of its own tasks", const auto home = make_executor();
                          sluice::sync_wait(*home, run_inside(*home)));
}

TEST_CASE("Task.awaiting_it_twice_stops_the_process") {
    CHECK_BREAKS_CONTRACT("task: awaited twice", const auto home = make_executor();
                          sluice::sync_wait(*home, await_twice()));
}

TEST_CASE("Task.awaiting_one_that_was_moved_from_stops_the_process") {
    CHECK_BREAKS_CONTRACT("task: awaited when empty or moved from", const auto home = make_executor();
                          sluice::sync_wait(*home, await_moved_from()));
}

TEST_CASE("Operation.destroying_a_frame_in_flight_stops_the_process_and_names_the_operation") {
    CHECK_BREAKS_CONTRACT(
        "operation 'poll_add'", const auto home = make_executor(); {
            auto work = wait_forever(silent_pipe());
            sluice::detail::root driver = [](sluice::task<void>& waiting) -> sluice::detail::root {
                co_await std::move(waiting);
            }(work);
            driver.handle.promise().bind(*home, {});
            home->make_ready(driver.handle.promise());
            sluice::sync_wait(*home, []() -> sluice::task<void> { co_await sluice::yield{}; }());
        });
}

TEST_CASE("Scope.destroying_one_whose_children_run_stops_the_process") {
    CHECK_BREAKS_CONTRACT("scope: destroyed while children run", const auto home = make_executor();
                          sluice::sync_wait(*home, abandon_a_child()));
}

TEST_CASE("Scope.spawning_an_empty_task_stops_the_process") {
    CHECK_BREAKS_CONTRACT("scope: spawn of a task that is empty or moved from", const auto home = make_executor();
                          sluice::scope children; children.spawn(sluice::task<void>()));
}

TEST_CASE("Stop_source.making_one_without_an_executor_stops_the_process") {
    CHECK_BREAKS_CONTRACT("stop_source: made on a thread without an executor", const sluice::stop_source source);
}

TEST_CASE("Stop_source.destroying_one_on_another_thread_stops_the_process") {
    CHECK_BREAKS_CONTRACT("stop_source: destroyed on another thread", const auto home = make_executor();
                          auto source = std::make_unique<sluice::stop_source>();
                          std::thread([&] { source.reset(); }).join());
}

TEST_CASE("Stop_source.destroying_one_that_is_listened_to_stops_the_process") {
    CHECK_BREAKS_CONTRACT("stop_source: destroyed while operations still listen", const auto home = make_executor();
                          auto source = std::make_unique<sluice::stop_source>();
                          static sluice::detail::stop_callback_node listener; source->token().state()->link(listener);
                          source.reset());
}
