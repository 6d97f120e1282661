#include <sluice/operation.hpp>
#include <sluice/runtime.hpp>
#include <sluice/sleep.hpp>

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <thread>

namespace {

sluice::task<std::thread::id> where() {
    static_cast<void>(co_await sluice::nop());
    co_return std::this_thread::get_id();
}

sluice::task<int> fails() {
    static_cast<void>(co_await sluice::nop());
    throw std::runtime_error("on purpose");
    co_return 0;
}

sluice::task<std::size_t> lease(sluice::runtime& rt, std::size_t n) {
    auto buffer = co_await rt.pool().allocate(n);
    co_return buffer.value().size_bytes();
}

} // namespace

TEST_CASE("Runtime.each_executor_runs_on_a_thread_of_its_own") {
    auto rt = sluice::runtime::create({.executors = 2, .pool_bytes = 4 << 20}).value();
    REQUIRE(rt.executors() == 2);
    const auto first = rt.sync_wait(where(), 0);
    const auto second = rt.sync_wait(where(), 1);
    CHECK(first != second);
    CHECK(first != std::this_thread::get_id());
    CHECK(rt.sync_wait(where(), 0) == first);
}

TEST_CASE("Runtime.rethrows_on_the_waiting_thread") {
    auto rt = sluice::runtime::create({.pool_bytes = 4 << 20}).value();
    CHECK_THROWS_AS(rt.sync_wait(fails()), std::runtime_error);
}

TEST_CASE("Runtime.tasks_lease_memory_of_its_pool") {
    auto rt = sluice::runtime::create({.pool_bytes = 4 << 20}).value();
    CHECK(rt.sync_wait(lease(rt, 10'000)) == 10'000);
    CHECK(rt.pool().occupancy().leases == 0);
}

TEST_CASE("Runtime.a_required_feature_that_is_missing_is_named") {
    const auto rt = sluice::runtime::create({.rdma = sluice::mode::require});
    REQUIRE_FALSE(rt);
    CHECK(rt.error() == sluice::condition::unsupported);
    CHECK(rt.error().message().find("rdma: required") != std::string::npos);
}

TEST_CASE("Runtime.wrong_options_are_named") {
    CHECK(sluice::runtime::create({.executors = 5000}).error().message().find("executors = 5000") != std::string::npos);
    CHECK(sluice::runtime::create({.pool_bytes = 1}).error().message().find("size_bytes = 1") != std::string::npos);
    // An executor that can't start ends the others and is reported.
    const auto rt = sluice::runtime::create({.executors = 3, .pool_bytes = 4 << 20, .executor = {.ready_budget = 0}});
    REQUIRE_FALSE(rt);
    CHECK(rt.error().message().find("ready_budget = 0") != std::string::npos);
}

TEST_CASE("Runtime.run_returns_the_status_of_the_program") {
    const auto app = [](sluice::runtime& rt) -> sluice::task<int> {
        static_cast<void>(co_await sluice::sleep_for(std::chrono::milliseconds(1)));
        co_return rt.executors() == 1 ? 17 : 0;
    };
    CHECK(sluice::run(app, {.pool_bytes = 4 << 20}) == 17);
}

TEST_CASE("Runtime.starts_and_stops_many_times") {
    for (int i = 0; i < 50; ++i) {
        auto rt = sluice::runtime::create({.executors = 2, .pool_bytes = 2 << 20}).value();
        static_cast<void>(rt.sync_wait(where(), static_cast<std::uint32_t>(i % 2)));
    }
}
