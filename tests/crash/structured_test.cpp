#include <sluice/blocking.hpp>
#include <sluice/channel.hpp>
#include <sluice/event.hpp>
#include <sluice/executor.hpp>
#include <sluice/scope.hpp>
#include <sluice/semaphore.hpp>
#include <sluice/sleep.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>
#include <sluice/when_all.hpp>
#include <sluice/when_any.hpp>

#include "tests/support/death.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using sluice::task;

namespace {

std::unique_ptr<sluice::executor> make_executor() { return std::move(sluice::executor::create().value()); }

task<void> sleeps_long() { static_cast<void>(co_await sluice::sleep_for(1h)); }

task<void> throws_out_of_a_scope() {
    sluice::scope s;
    s.spawn(sleeps_long());
    co_await sluice::yield();
    throw std::runtime_error("lost");
}

/// Starts `work` on a coroutine of its own, and destroys its frame while it is suspended.
template <class T>
task<void> abandon(task<T> work) {
    auto abandoned = std::make_optional(std::move(work));
    const auto starter = [](task<T>& started) -> sluice::detail::detached { co_await sluice::detail::ended<T>(started); };
    starter(*abandoned).start(co_await sluice::this_executor(), {});
    for (int i = 0; i < 5; ++i) co_await sluice::yield();
    abandoned.reset();
}

/// A task that waits for `What(1)` (or one that is not set), which goes before it.
template <class What, class Wait>
void outlived(Wait wait) {
    const auto home = make_executor();
    const auto body = [](Wait waits) -> task<void> {
        sluice::scope s;
        std::optional<What> what;
        if constexpr (std::is_same_v<What, sluice::event>) what.emplace(false);
        else what.emplace(1U);
        s.spawn(waits(*what));
        co_await sluice::yield();
        co_await sluice::yield();
        what.reset();
    };
    sluice::sync_wait(*home, body(wait));
}

} // namespace

TEST_CASE("Scope.destroyed_by_an_exception_while_children_run") {
    CHECK_BREAKS_CONTRACT("scope: an exception left its block while children run",
                          sluice::sync_wait(*make_executor(), throws_out_of_a_scope()));
}

TEST_CASE("Sleep.destroyed_while_it_sleeps_stops_the_process") {
    CHECK_BREAKS_CONTRACT("sleep: destroyed while it sleeps", const auto home = make_executor();
                          sluice::sync_wait(*home, abandon(sleeps_long())));
}

TEST_CASE("When_all.destroyed_while_its_tasks_run_stops_the_process") {
    CHECK_BREAKS_CONTRACT("when_all, when_any: destroyed while their tasks run", const auto home = make_executor();
                          sluice::sync_wait(*home, abandon(sluice::when_all(sleeps_long(), sleeps_long()))));
}

TEST_CASE("When_any.of_no_task_stops_the_process") {
    CHECK_BREAKS_CONTRACT("when_any: needs at least one task", const auto home = make_executor();
                          sluice::sync_wait(*home, sluice::when_any(std::vector<task<int>>())));
}

TEST_CASE("Wait.destroying_what_a_task_waits_for_stops_the_process") {
    CHECK_BREAKS_CONTRACT("channel: destroyed while tasks wait in it", outlived<sluice::channel<int>>([](auto& c) -> task<void> {
                              static_cast<void>(co_await c.receive());
                          }));
    CHECK_BREAKS_CONTRACT("semaphore: destroyed while tasks wait", outlived<sluice::semaphore>([](auto& s) -> task<void> {
                              static_cast<void>(co_await s.acquire(2));
                          }));
    CHECK_BREAKS_CONTRACT("event: destroyed while tasks wait", outlived<sluice::event>([](auto& e) -> task<void> {
                              static_cast<void>(co_await e.wait());
                          }));
}

TEST_CASE("Wait.destroying_the_task_that_waits_stops_the_process") {
    CHECK_BREAKS_CONTRACT("a coroutine was destroyed while it waits", const auto home = make_executor();
                          const auto wait = [](sluice::event& e) -> task<void> { static_cast<void>(co_await e.wait()); };
                          sluice::event never; sluice::sync_wait(*home, abandon(wait(never))));
}

TEST_CASE("Run_blocking.destroying_the_task_that_waits_stops_the_process") {
    CHECK_BREAKS_CONTRACT("run_blocking: destroyed while its call runs", const auto home = make_executor();
                          const auto block = []() -> task<void> { co_await sluice::run_blocking([] { pause(); }); };
                          sluice::sync_wait(*home, abandon(block())));
}

TEST_CASE("Executor.destroying_it_while_a_task_sleeps_stops_the_process") {
    CHECK_BREAKS_CONTRACT("executor: destroyed while tasks sleep", auto home = make_executor();
                          static auto work = sleeps_long();
                          const auto start = [](task<void>& started) -> task<void> {
                              const auto starter = [](task<void>& w) -> sluice::detail::detached {
                                  co_await sluice::detail::ended<void>(w);
                              };
                              starter(started).start(co_await sluice::this_executor(), {});
                              co_await sluice::yield();
                              co_await sluice::yield();
                          };
                          sluice::sync_wait(*home, start(work)); home.reset());
}
