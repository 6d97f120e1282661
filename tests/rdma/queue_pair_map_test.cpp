#include "rdma/queue_pair_map.hpp"
#include "rdma/queue_pair_state.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <random>
#include <unordered_map>

using namespace sluice::rdma;

namespace {

/// Never looked into.
queue_pair_state& state(std::uintptr_t number) { return *reinterpret_cast<queue_pair_state*>((number + 1) * 64); }

} // namespace

TEST_CASE("Queue_pair_map.finds_the_smallest_and_the_largest_number") {
    queue_pair_map map;
    for (const std::uint32_t number : {0U, 1U, 0xFFFFFFU, 0x1000000U, 0xFFFFFFFFU}) {
        CHECK(map.find(number) == nullptr);
        map.insert(number, state(number));
    }
    for (const std::uint32_t number : {0U, 1U, 0xFFFFFFU, 0x1000000U, 0xFFFFFFFFU})
        CHECK(map.find(number) == &state(number));
    map.erase(0);
    CHECK(map.find(0) == nullptr);
    CHECK(map.find(0xFFFFFFFFU) == &state(0xFFFFFFFFU));
    CHECK(map.size() == 4);
}

TEST_CASE("Queue_pair_map.does_what_a_map_of_the_library_does") {
    std::mt19937 random(80);
    queue_pair_map map;
    std::unordered_map<std::uint32_t, queue_pair_state*> model;
    for (int i = 0; i < 20000; ++i) {
        // Few numbers, in steps that many devices make, so that they meet.
        const std::uint32_t number = static_cast<std::uint32_t>(random() % 400) * (i % 2 == 0 ? 1 : 64);
        if (const auto known = model.find(number); known != model.end()) {
            CHECK(map.find(number) == known->second);
            map.erase(number);
            model.erase(known);
        } else {
            CHECK(map.find(number) == nullptr);
            map.insert(number, state(number));
            model.emplace(number, &state(number));
        }
        if (i % 500 == 0)
            for (const auto& [n, s] : model) CHECK(map.find(n) == s);
    }
    std::size_t visited = 0;
    map.for_each([&](queue_pair_state&) { ++visited; });
    CHECK(visited == model.size());
    CHECK(map.size() == model.size());
}
