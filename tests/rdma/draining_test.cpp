#include "tests/rdma/rail_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <thread>

// Queue pairs that failed, while others that failed go.

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

/// Drained by the device's word, and with nobody to hear of it.
void drain_and_leave(rail_world& world, test_pair& pair) {
    pair.qp->fail();
    world.turn();
    REQUIRE(pair.qp->drained());
    pair.qp->set_user(nullptr);
}

void destroy_elsewhere(test_pair& pair) {
    std::thread([&] { pair.qp.reset(); }).join();
}

task<void> completes_after(rail_world& world, std::uint64_t polls, ibv_qp* of) {
    while (world.fake.calls("poll_cq") < polls) co_await yield();
    world.fake.complete(of, 1);
    co_await round_trips();
}

} // namespace

TEST_CASE("Draining.one_is_given_up_while_the_next_one_leaves_on_a_helper_thread") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    test_pair keeps(world, on);
    test_pair leaves(world, on);
    world.fake.flushes_at_once(false);
    keeps.qp->add(keeps.write(1));
    world.turn();
    keeps.qp->fail();
    const auto failed = std::chrono::steady_clock::now();
    world.fake.flushes_at_once(true);
    drain_and_leave(world, leaves);
    destroy_elsewhere(leaves);
    std::this_thread::sleep_until(failed + 11ms); // with soft-iWARP its time is over after 10
    keeps.qp->drain_now(1s);
    REQUIRE(keeps.user.done.size() == 1);
    CHECK(keeps.user.done.front().how.flushed());
}

TEST_CASE("Draining.a_queue_that_breaks_does_not_destroy_what_a_helper_thread_destroys") {
    fake_device_options small;
    small.limits.max_cqe = 512; // half of it for sends
    rail_world world(small);
    const auto on = world.make_rail();
    test_pair speaks(world, on, {.send_depth = 200});
    test_pair leaves(world, on, {.send_depth = 200});
    REQUIRE(world.fake.init_of(speaks.raw).send_cq != world.fake.init_of(leaves.raw).send_cq);
    world.turn();
    drain_and_leave(world, leaves);
    speaks.qp->add(speaks.write(1));
    world.turn();
    // The second queue breaks in one poll; in the next, before that is seen to, the first one's completion is heard.
    world.fake.fail("poll_cq", 2, EIO);
    speaks.user.when_done = [&] { destroy_elsewhere(leaves); };
    sync_wait(*world.home, completes_after(world, world.fake.calls("poll_cq") + 2, speaks.raw));
    CHECK(speaks.user.count(IBV_WC_SUCCESS) == 1);
    CHECK(leaves.qp == nullptr);
}
