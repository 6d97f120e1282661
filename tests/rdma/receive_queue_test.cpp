#include <sluice/event.hpp>

#include "rdma/queue_pair.hpp"
#include "rdma/rail.hpp"
#include "tests/rdma/rail_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <thread>

using namespace sluice;
using namespace sluice::rdma;
using namespace std::chrono_literals;
using sluice::testing::fake_device_options;
using sluice::testing::rail_world;
using sluice::testing::test_pair;

namespace {

std::vector<std::byte> numbered(std::uint8_t number, std::size_t bytes = 40) {
    return std::vector<std::byte>(bytes, std::byte{number});
}

task<void> next_frame(test_pair& to) {
    event told;
    to.user.when_frame = [&] { told.set(); };
    static_cast<void>(co_await told.wait());
    to.user.when_frame = nullptr;
}

} // namespace

TEST_CASE("Receive_queue.a_slot_is_posted_again_in_the_turn_that_handed_its_frame_over") {
    rail_world world;
    const auto on = world.make_rail();
    const auto slots = on->add_slots(4, 4);
    REQUIRE(slots);
    CHECK(*slots == 4);
    test_pair a(world, on);
    CHECK(world.fake.receives_posted(a.raw->srq) == 4);
    for (std::uint8_t i = 0; i < 100; ++i) {
        world.fake.deliver(a.raw, numbered(i, i < 50 ? 32U + i : slot_bytes));
        if (i % 4 == 3) {
            CHECK(world.fake.receives_posted(a.raw->srq) == 0);
            world.turn();
            CHECK(world.fake.receives_posted(a.raw->srq) == 4);
        }
    }
    REQUIRE(a.user.frames.size() == 100);
    for (std::uint8_t i = 0; i < 100; ++i) CHECK(a.user.frames[i] == numbered(i, i < 50 ? 32U + i : slot_bytes));
    on->remove_slots(4);
}

TEST_CASE("Receive_queue.a_credit_for_a_frame_is_posted_after_its_slot") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(1, 1));
    test_pair a(world, on), b(world, on);
    world.fake.wire(a.raw, b.raw);
    world.fake.automatic(true); // whatever is sent arrives at once, or fails for want of a slot
    int bounced = 0;
    const auto answer = [&](test_pair& from) {
        return [&] {
            if (++bounced < 200) from.qp->add(from.frame(1));
        };
    };
    a.user.when_frame = answer(a);
    b.user.when_frame = answer(b);
    a.qp->add(a.frame(1));
    for (int i = 0; i < 100; ++i) world.turn();
    CHECK(bounced == 200);
    CHECK(a.user.count(IBV_WC_SUCCESS) + b.user.count(IBV_WC_SUCCESS) == 200);
    on->remove_slots(1);
}

TEST_CASE("Receive_queue.frames_wait_for_the_first_user_and_are_dropped_after_the_last") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(8, 8));
    test_pair a(world, on, {}, false);
    for (std::uint8_t i = 0; i < 3; ++i) world.fake.deliver(a.raw, numbered(i));
    world.turn();
    CHECK(world.fake.receives_posted(a.raw->srq) == 5); // held
    a.qp->set_user(&a.user);
    CHECK(a.user.frames.empty());           // not within the call
    world.fake.deliver(a.raw, numbered(3)); // comes after those that were there
    world.turn();
    REQUIRE(a.user.frames.size() == 4);
    for (std::uint8_t i = 0; i < 4; ++i) CHECK(a.user.frames[i] == numbered(i));
    a.qp->set_user(nullptr);
    world.fake.deliver(a.raw, numbered(4));
    world.turn();
    CHECK(a.user.frames.size() == 4);
    CHECK(world.fake.receives_posted(a.raw->srq) == 8);
    {
        test_pair b(world, on, {}, false);
        world.fake.deliver(b.raw, numbered(5));
        world.turn();
        CHECK(world.fake.receives_posted(a.raw->srq) == 7);
    }
    world.turn();
    CHECK(world.fake.receives_posted(a.raw->srq) == 8); // it went without ever having had one
    on->remove_slots(8);
}

TEST_CASE("Receive_queue.a_user_that_leaves_while_frames_are_handed_over_hears_of_no_more") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(8, 8));
    test_pair a(world, on, {}, false);
    for (std::uint8_t i = 0; i < 3; ++i) world.fake.deliver(a.raw, numbered(i));
    world.turn();
    a.user.when_frame = [&] { a.qp->set_user(nullptr); };
    a.qp->set_user(&a.user);
    world.turn();
    CHECK(a.user.frames.size() == 1);
    CHECK(world.fake.receives_posted(a.raw->srq) == 8);
    on->remove_slots(8);
}

TEST_CASE("Receive_queue.slots_are_added_as_far_as_the_device_allows_and_removed_when_they_return") {
    fake_device_options options;
    options.limits.max_srq_wr = 100;
    rail_world world(options);
    const auto on = world.make_rail();
    test_pair a(world, on);
    CHECK(*on->add_slots(60, 60) == 60);
    CHECK(*on->add_slots(30, 60) == 40); // fewer than wanted
    const auto refused = on->add_slots(1, 10);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == errc::out_of_resources);
    CHECK(refused.error().message().find("room for 0 of 100 slots") != std::string::npos);
    CHECK(world.fake.receives_posted(a.raw->srq) == 100);
    on->remove_slots(40);
    CHECK(on->counters().slots == 100); // they can't be taken back
    for (std::uint8_t i = 0; i < 50; ++i) world.fake.deliver(a.raw, numbered(i));
    world.turn();
    CHECK(on->counters().slots == 60);
    CHECK(world.fake.receives_posted(a.raw->srq) == 60);
    const auto registered = world.fake.registrations(world.context).size();
    CHECK(*on->add_slots(40, 40) == 40);
    CHECK(world.fake.receives_posted(a.raw->srq) == 100);
    CHECK(world.fake.registrations(world.context).size() == registered); // the memory was there
    on->remove_slots(100);
}

TEST_CASE("Receive_queue.slabs_are_registered_once_page_aligned_and_for_local_writing_only") {
    rail_world world;
    const auto on = world.make_rail();
    for (int i = 0; i < 32; ++i) REQUIRE(on->add_slots(32, 32));
    const auto registered = world.fake.registrations(world.context);
    CHECK(registered.size() == 16); // of 64 slots each
    for (const auto& each : registered) {
        CHECK(reinterpret_cast<std::uintptr_t>(each.mr->addr) % 4096 == 0);
        CHECK(each.mr->length % 4096 == 0);
        CHECK(each.access == IBV_ACCESS_LOCAL_WRITE);
    }
    on->remove_slots(1024);
}

TEST_CASE("Receive_queue.what_the_device_refuses_to_post_is_an_error_when_added_and_tried_again_when_returned") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    world.fake.fail("post_srq_recv", 1, ENOMEM);
    const auto refused = on->add_slots(4, 4);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == errc::out_of_resources);
    CHECK(on->counters().slots == 0);
    REQUIRE(on->add_slots(4, 4));
    CHECK(world.fake.receives_posted(a.raw->srq) == 4);
    for (std::uint8_t i = 0; i < 3; ++i) world.fake.deliver(a.raw, numbered(i));
    for (std::uint64_t nth = 1; nth <= 20; ++nth) world.fake.fail("post_srq_recv", nth, ENOMEM);
    world.turn();
    CHECK(a.user.frames.size() == 3);
    CHECK(world.fake.receives_posted(a.raw->srq) == 1);
    // Nothing else is there to be done, and yet it doesn't sleep on it.
    std::size_t posted = 0;
    std::thread device([&] {
        const auto end = std::chrono::steady_clock::now() + 10s;
        while (posted < 4 && std::chrono::steady_clock::now() < end) posted = world.fake.receives_posted(a.raw->srq);
        world.fake.deliver(a.raw, numbered(3));
    });
    sync_wait(*world.home, next_frame(a));
    device.join();
    CHECK(posted == 4);
    world.turn();
    CHECK(world.fake.receives_posted(a.raw->srq) == 4);
    world.fake.fail("reg_mr", 1, ENOMEM);
    const auto no_memory = on->add_slots(100, 100);
    REQUIRE_FALSE(no_memory);
    CHECK(on->counters().slots == 4);
    on->remove_slots(4);
}

TEST_CASE("Receive_queue.a_receive_that_fails_ends_its_queue_pair_and_its_slot_is_used_again") {
    rail_world world;
    const auto on = world.make_rail();
    REQUIRE(on->add_slots(4, 4));
    test_pair a(world, on), b(world, on);
    a.qp->add(a.write(1));
    world.turn();
    world.fake.deliver(a.raw, numbered(1, slot_bytes + 1)); // a peer that doesn't keep to the size of a slot
    world.fake.deliver(b.raw, numbered(2));
    world.turn();
    CHECK(a.user.frames.empty());
    CHECK(a.user.events[0] == broken_frames);
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 1);
    CHECK(b.user.frames.size() == 1);
    CHECK(world.fake.receives_posted(b.raw->srq) == 4);
    world.fake.fail_receive(b.raw, IBV_WC_WR_FLUSH_ERR); // is only a consequence
    world.turn();
    CHECK(world.fake.receives_posted(b.raw->srq) == 4);
    on->remove_slots(4);
}
