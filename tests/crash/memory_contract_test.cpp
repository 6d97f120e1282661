#include "tests/support/death.hpp"

#include <sluice/executor.hpp>
#include <sluice/memory.hpp>
#include <sluice/pool.hpp>
#include <sluice/region.hpp>
#include <sluice/scope.hpp>
#include <sluice/sync_wait.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace {

constexpr std::size_t pool_bytes = std::size_t{2} << 20;

std::array<std::byte, 128> surroundings;
const std::span<std::byte> memory = std::span(surroundings).subspan(32, 64);
const sluice::detail::registration home{memory.data(), memory.size()};

std::unique_ptr<sluice::memory_pool> make_pool() {
    return std::move(sluice::memory_pool::create({.size_bytes = pool_bytes})).value();
}

/// Lets a child wait for memory that is all taken, and then takes the pool away.
sluice::task<void> destroy_under_a_waiter() {
    auto pool = make_pool();
    auto all = std::move(pool->try_allocate(pool_bytes, sluice::purpose::receive)).value();
    sluice::scope children;
    children.spawn([](sluice::memory_pool& empty) -> sluice::task<void> {
        static_cast<void>(co_await empty.allocate(4096));
    }(*pool));
    co_await sluice::yield{};
    all.reset();
    pool.reset();
}

} // namespace

TEST_CASE("Region_view.outside_its_registered_memory_stops_the_process") {
    CHECK_BREAKS_CONTRACT("region view: outside its registered memory",
                          sluice::region_view(memory.data() + 1, memory.size(), home));
    CHECK_BREAKS_CONTRACT("region view: outside its registered memory",
                          sluice::region_view(memory.data() - 1, memory.size(), home));
    CHECK_BREAKS_CONTRACT("region view: outside its registered memory",
                          sluice::region_view(memory.data(), static_cast<std::size_t>(-1), home));
}

TEST_CASE("Region_view.a_subview_past_the_end_stops_the_process") {
    const sluice::region_view whole(memory.data(), memory.size(), home);
    CHECK(whole.subview(memory.size(), 0).size_bytes() == 0);
    CHECK(whole.first(memory.size()).data() == memory.data());
    CHECK_BREAKS_CONTRACT("subview past the end",
                          sluice::region_view(memory.data(), memory.size(), home).first(memory.size() + 1));
    CHECK_BREAKS_CONTRACT("subview past the end",
                          sluice::region_view(memory.data(), memory.size(), home).subview(1, memory.size()));
    CHECK_BREAKS_CONTRACT(
        "subview past the end",
        sluice::region_view(memory.data(), memory.size(), home).subview(1, static_cast<std::size_t>(-1)));
}

TEST_CASE("Remote_view.a_subview_past_the_end_stops_the_process") {
    const sluice::remote_region region{.address = 4096, .size_bytes = 100};
    CHECK(region.subview(99, 1).address() == 4195);
    CHECK_BREAKS_CONTRACT("remote view: subview past the end",
                          sluice::remote_region{.address = 4096, .size_bytes = 100}.first(101));
    CHECK_BREAKS_CONTRACT("remote view: subview past the end",
                          sluice::remote_region{.address = 4096, .size_bytes = 100}.subview(1, ~std::uint64_t{0}));
}

TEST_CASE("Memory_pool.destroying_it_before_its_leases_stops_the_process_and_counts_them") {
    CHECK_BREAKS_CONTRACT("memory pool: destroyed while 2 leases of 12288 bytes are out", auto pool = make_pool();
                          const auto one = pool->try_allocate(4096); const auto two = pool->try_allocate(8192);
                          pool.reset());
}

TEST_CASE("Memory_pool.destroying_it_under_a_waiter_stops_the_process") {
    CHECK_BREAKS_CONTRACT("memory pool: destroyed while",
                          const auto home_executor = std::move(sluice::executor::create()).value();
                          sluice::sync_wait(*home_executor, destroy_under_a_waiter()));
}
