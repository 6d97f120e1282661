#include "rdma/queue_pair.hpp"
#include "tests/rdma/rail_fixture.hpp"
#include "tests/support/death.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>

// Apart from the others: a process that forks has no helper threads.

using namespace std::chrono_literals;
using sluice::testing::rail_world;
using sluice::testing::test_pair;

TEST_CASE("Queue_pair_contract.what_callers_must_ensure_stops_the_process") {
    CHECK_BREAKS_CONTRACT("work added without room", {
        rail_world world;
        const auto on = world.make_rail();
        test_pair a(world, on, {.send_depth = 1});
        a.qp->add(a.write(1));
        a.qp->add(a.write(2));
    });
    CHECK_BREAKS_CONTRACT("destroyed with work in flight", {
        rail_world world;
        const auto on = world.make_rail();
        test_pair a(world, on);
        a.qp->add(a.write(1));
        a.qp.reset();
    });
    CHECK_BREAKS_CONTRACT("drain_now() from within a callback", {
        rail_world world;
        const auto on = world.make_rail();
        test_pair a(world, on);
        a.qp->add(a.write(1));
        world.turn();
        a.user.when_done = [&] { a.qp->drain_now(1ms); };
        world.fake.complete(a.raw, 1);
        world.turn();
    });
}
