#include <sluice/executor.hpp>
#include <sluice/operation.hpp>
#include <sluice/sleep.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;

namespace {

std::unique_ptr<sluice::executor> make_executor(sluice::executor_options options = {}) {
    auto made = sluice::executor::create(options);
    REQUIRE(made);
    return std::move(*made);
}

sluice::task<int> answer() { co_return 42; }

sluice::task<int> sum_of_immediate_tasks(int count) {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += co_await answer() == 42 ? 1 : 0;
    co_return sum;
}

sluice::task<int> nested(int depth) {
    if (depth == 0) co_return 0;
    co_return 1 + co_await nested(depth - 1);
}

sluice::task<int> throws() {
    throw std::runtime_error("from the task");
    co_return 0;
}

sluice::task<bool> nops(int count) {
    for (int i = 0; i < count; ++i)
        if (const auto r = co_await sluice::nop(); !r) co_return false;
    co_return true;
}

} // namespace

TEST_CASE("Executor.returns_what_the_task_returns") {
    auto home = make_executor();
    CHECK(sluice::sync_wait(*home, answer()) == 42);
    CHECK(sluice::executor::current() == home.get());
}

TEST_CASE("Executor.rethrows_what_the_task_throws") {
    auto home = make_executor();
    CHECK_THROWS_AS(sluice::sync_wait(*home, throws()), std::runtime_error);
}

TEST_CASE("Executor.runs_a_million_immediate_awaits_in_bounded_stack") {
    // 256 KiB of stack in a thread of its own: an await that nests would need a hundred times that.
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, 512 * 1024) == 0);
    int sum = 0;
    pthread_t thread{};
    const auto body = [](void* out) -> void* {
        auto home = sluice::executor::create();
        if (home) *static_cast<int*>(out) = sluice::sync_wait(**home, sum_of_immediate_tasks(1'000'000));
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, &attributes, body, &sum) == 0);
    REQUIRE(pthread_join(thread, nullptr) == 0);
    pthread_attr_destroy(&attributes);
    CHECK(sum == 1'000'000);
}

TEST_CASE("Executor.nests_a_hundred_thousand_tasks") {
    auto home = make_executor();
    CHECK(sluice::sync_wait(*home, nested(100'000)) == 100'000);
}

TEST_CASE("Executor.completes_operations_one_after_another") {
    auto home = make_executor();
    const auto before = home->stats();
    CHECK(sluice::sync_wait(*home, nops(1000)));
    CHECK(home->stats().operations_completed - before.operations_completed == 1000);
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("Executor.rejects_an_option_out_of_range_by_name") {
    const auto made = sluice::executor::create({.submission_entries = 1});
    REQUIRE_FALSE(made);
    CHECK(made.error() == sluice::condition::invalid);
    CHECK(made.error().message().find("submission_entries = 1") != std::string::npos);
}

TEST_CASE("Executor.sleeps_until_a_timer_is_due") {
    auto home = make_executor();
    const auto start = std::chrono::steady_clock::now();
    const auto sleeper = [](std::chrono::nanoseconds d) -> sluice::task<bool> {
        co_return (co_await sluice::sleep_for(d)).has_value();
    };
    CHECK(sluice::sync_wait(*home, sleeper(20ms)));
    CHECK(std::chrono::steady_clock::now() - start >= 20ms);
    CHECK(sluice::sync_wait(*home, sleeper(-1h)));
}

TEST_CASE("Executor.wakes_for_a_post_from_another_thread") {
    auto home = make_executor();
    struct waiter {
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<sluice::detail::task_promise<int>> h) noexcept {
            posted.self = this;
            posted.promise = &h.promise();
            posted.run = [](sluice::detail::posted_node& n) noexcept {
                auto& p = static_cast<node&>(n);
                p.promise->home().make_ready(*p.promise);
            };
            sluice::executor& target = h.promise().home();
            poster = std::thread([this, &target] { target.post(posted); });
        }
        int await_resume() { poster.join(); return 7; }
        struct node : sluice::detail::posted_node {
            waiter* self = nullptr;
            sluice::detail::promise_base* promise = nullptr;
        } posted;
        std::thread poster;
    };
    const auto body = []() -> sluice::task<int> {
        int sum = 0;
        for (int i = 0; i < 100; ++i) {
            waiter w;
            sum += co_await w;
        }
        co_return sum;
    };
    CHECK(sluice::sync_wait(*home, body()) == 700);
}

TEST_CASE("Executor.sees_a_foreign_descriptor_become_ready") {
    auto home = make_executor();
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    std::thread writer([fd] {
        const std::uint64_t one = 1;
        REQUIRE(write(fd, &one, sizeof one) == sizeof one);
    });
    const auto body = [](int watched) -> sluice::task<std::uint32_t> {
        co_return (co_await sluice::readiness(watched, POLLIN)).value();
    };
    CHECK((sluice::sync_wait(*home, body(fd)) & POLLIN) != 0);
    writer.join();
    close(fd);
}

TEST_CASE("Executor.stop_ends_run_from_another_thread") {
    auto home = make_executor();
    std::thread stopper([&] { home->stop(); });
    home->run();
    stopper.join();
    home->stop();
    home->run();
}

TEST_CASE("Executor.a_stop_request_from_another_thread_cancels_the_operation") {
    auto home = make_executor();
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    {
        sluice::stop_source source;
        std::thread stopper([&] { source.request_stop(); });
        const auto body = [](int watched) -> sluice::task<sluice::result<std::uint32_t>> {
            co_return co_await sluice::readiness(watched, POLLIN);
        };
        const auto r = sluice::sync_wait(*home, body(fd), source.token());
        stopper.join();
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    CHECK(home->stats().in_flight == 0);
    close(fd);
}
