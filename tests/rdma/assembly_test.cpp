#include "rdma/assembly.hpp"

#include "tests/rdma/set_up_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;
using rdma::assembly;
using rdma::greeting;

namespace {

task<std::shared_ptr<rdma::rail>> rail_on(ibv_context* card) {
    auto on = rdma::device::of(card);
    REQUIRE(on);
    auto made = co_await rdma::rail::of(**on);
    REQUIRE(made);
    co_return std::move(*made);
}

} // namespace

TEST_CASE("Assembly.gives_its_slots_back_when_it_comes_to_nothing") {
    two_ends ends;
    const auto body = [](two_ends& e) -> task<void> {
        const auto on = co_await rail_on(e.card);
        {
            assembly dropped;
            dropped.on = on;
            check_ok(dropped.take_slots());
            CHECK(dropped.slots == rdma::slots_for_frames + rdma::slots_kept_back);
            CHECK(on->counters().slots == dropped.slots);
            CHECK(rdma::greeting_of(greeting::kind::request, {}, dropped, 1).slots == rdma::slots_for_frames);
        }
        assembly taken_down;
        taken_down.on = on;
        check_ok(taken_down.take_slots());
        CHECK(on->counters().slots == taken_down.slots); // the same ones
        co_await taken_down.take_down();
        assembly last;
        last.on = on;
        check_ok(last.take_slots());
        CHECK(on->counters().slots == last.slots);
    };
    ends.run(body(ends));
}

TEST_CASE("Assembly.the_smaller_of_both_limits_counts") {
    greeting mine = sample_request(1, 4);
    mine.atomics = true;
    greeting theirs = sample_request(2, 2);
    theirs.credits = 5;
    theirs.operations_in_flight = 70000;
    theirs.message_bytes_max = 4096;
    theirs.atomics = true;
    const greeting both = rdma::meet(mine, theirs);
    CHECK(both.lanes == 2);
    CHECK(both.credits == 5);
    CHECK(both.operations_in_flight == 1024);
    CHECK(both.message_bytes_max == 4096);
    CHECK(both.atomics);
    theirs.atomics = false;
    CHECK_FALSE(rdma::meet(mine, theirs).atomics);
}

TEST_CASE("Assembly.atomics_are_announced_where_memory_is_shared_for_them") {
    fake_device_options hardware; // one that says it has atomics, over a transport that has none
    hardware.node = IBV_NODE_RNIC;
    hardware.transport = IBV_TRANSPORT_IWARP;
    hardware.limits.atomic_cap = IBV_ATOMIC_HCA;
    const bool iwarp = GENERATE(false, true);
    two_ends ends(iwarp ? hardware : fake_device_options());
    const auto body = [](two_ends& e, bool none) -> task<void> {
        assembly parts;
        parts.on = co_await rail_on(e.card);
        check_ok(parts.take_slots());
        CHECK(rdma::greeting_of(greeting::kind::request, {}, parts, 1).atomics != none);
    };
    ends.run(body(ends, iwarp));
}

TEST_CASE("Assembly.eight_transmissions_fit_into_the_peer_timeout") {
    const auto eight = [](std::uint8_t power) { return std::chrono::nanoseconds(std::int64_t{8} * 4096 << power); };
    CHECK(rdma::ack_timeout_of(20s) == 18); // 1.07 s
    CHECK(rdma::ack_timeout_of(24h) == 18);
    CHECK(rdma::ack_timeout_of(1s) == 14);
    CHECK(eight(14) <= 1s);
    CHECK(eight(15) > 1s);
    CHECK(rdma::ack_timeout_of(1ms) == 8);
}
