#include "tests/rdma/rail_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>

// What becomes of the receive slots that all queue pairs of a rail share.

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t many = 300; // more than a poll takes from one queue
constexpr auto last_byte = static_cast<std::byte>((many - 1) & 0xFF);

void deliver_many(rail_world& world, ibv_qp* to) {
    for (std::uint32_t i = 0; i < many; ++i) world.fake.deliver(to, std::vector<std::byte>(40, static_cast<std::byte>(i)));
}

} // namespace

TEST_CASE("Rail_slots.everything_that_came_is_handed_over_before_a_queue_pair_counts_as_drained") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(many, many));
    test_pair ends(world, on), stays(world, on);
    world.turn();
    deliver_many(world, ends.raw);
    CHECK(ends.qp->drain_now(1s));
    ends.qp.reset();
    world.turn();
    REQUIRE(ends.user.frames.size() == many);
    CHECK(ends.user.frames.back().back() == last_byte);
    CHECK(world.fake.receives_posted(stays.raw->srq) == many);
    on->remove_slots(many);
}

TEST_CASE("Rail_slots.those_of_a_queue_pair_that_is_given_up_come_back_and_others_hear_theirs") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(many + 1, many + 1));
    test_pair ends(world, on), stays(world, on);
    world.turn();
    world.fake.deliver(stays.raw, std::vector<std::byte>(40));
    stays.qp->add(stays.write(1));
    world.turn();
    deliver_many(world, ends.raw);
    world.fake.deliver(stays.raw, std::vector<std::byte>(41));
    world.fake.complete(stays.raw, 1);
    world.fake.fail("modify_qp", 1, EIO);
    ends.qp->fail();
    CHECK(ends.user.frames.empty()); // nobody is told from within a call
    world.turn();
    CHECK(ends.qp->drained());
    REQUIRE(ends.user.frames.size() == many);
    CHECK(ends.user.frames.back().back() == last_byte);
    ends.qp.reset();
    world.turn();
    REQUIRE(stays.user.frames.size() == 2);
    CHECK(stays.user.frames.back().size() == 41);
    CHECK(stays.user.count(IBV_WC_SUCCESS) == 1);
    CHECK(world.fake.receives_posted(stays.raw->srq) == many + 1);
    on->remove_slots(many + 1);
}

TEST_CASE("Rail_slots.a_queue_pair_without_a_user_holds_no_more_than_one_connection_has") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(40, 40)); // of two connections
    test_pair hoards(world, on, {}, false), other(world, on);
    for (int i = 0; i < 20; ++i) world.fake.deliver(hoards.raw, std::vector<std::byte>(40));
    world.turn();
    CHECK(hoards.raw->state == IBV_QPS_RTS);
    CHECK(world.fake.receives_posted(other.raw->srq) == 20);
    world.fake.deliver(hoards.raw, std::vector<std::byte>(40));
    world.turn();
    CHECK(hoards.raw->state == IBV_QPS_ERR);
    CHECK(world.fake.receives_posted(other.raw->srq) == 20); // the last one came back
    hoards.qp->set_user(&hoards.user);
    world.turn();
    CHECK(hoards.user.frames.size() == 20);
    REQUIRE_FALSE(hoards.user.events.empty());
    CHECK(hoards.user.events.back() == rdma::broken_frames);
    CHECK(world.fake.receives_posted(other.raw->srq) == 40);
    on->remove_slots(40);
}
