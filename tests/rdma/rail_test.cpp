#include "rdma/rail.hpp"
#include "tests/rdma/rail_fixture.hpp"

#include <sluice/event.hpp>
#include <sluice/when_all.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <string>
#include <thread>

using namespace sluice;
using namespace sluice::rdma;
using namespace std::chrono_literals;
using sluice::testing::fake_device_options;
using sluice::testing::rail_world;
using sluice::testing::test_pair;

namespace {

task<void> two_at_once(device& on, std::shared_ptr<rail>& first, std::shared_ptr<rail>& second) {
    auto both = co_await when_all(rail::of(on), rail::of(on));
    first = *std::get<0>(both);
    second = *std::get<1>(both);
}

/// Sleeps until the user of `pair` has heard of `count` works.
task<void> done_works(test_pair& pair, std::size_t count) {
    event told;
    pair.user.when_done = [&] {
        if (pair.user.done.size() == count) told.set();
    };
    if (pair.user.done.size() < count) static_cast<void>(co_await told.wait());
    pair.user.when_done = nullptr;
}

} // namespace

TEST_CASE("Rail.there_is_one_for_each_device_even_when_asked_for_twice_at_once") {
    rail_world world;
    std::shared_ptr<rail> first, second;
    sync_wait(*world.home, two_at_once(*world.on, first, second));
    CHECK(first != nullptr);
    CHECK(first == second);
    CHECK(world.fake.alive().srqs == 1);
    CHECK(rail::existing(*world.home, *world.on) == first);
    CHECK(&first->on() == world.on);
    CHECK(&first->home() == world.home.get());
    first.reset();
    second.reset();
    CHECK(world.fake.alive().srqs == 0);
    CHECK(rail::existing(*world.home, *world.on) == nullptr);
    CHECK(world.make_rail() != nullptr);
}

TEST_CASE("Rail.a_completion_wakes_the_executor_from_its_sleep") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    for (std::uintptr_t i = 1; i <= 300; ++i) { // more events than are acknowledged at once
        a.qp->add(a.write(i));
        world.turn();
        std::thread device([&] {
            while (!world.fake.armed(a.raw->send_cq)) std::this_thread::yield(); // it sleeps, or is about to
            world.fake.complete(a.raw, 1);
        });
        sync_wait(*world.home, done_works(a, i));
        device.join();
    }
    CHECK(a.user.done.size() == 300);
    CHECK(on->counters().events > 0);
    world.fake.spurious_event(a.raw->send_cq);
    world.turn();
}

TEST_CASE("Rail.a_failed_completion_of_one_queue_pair_does_not_hold_up_the_others") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on), b(world, on);
    for (std::uintptr_t i = 1; i <= 40; ++i) {
        a.qp->add(a.write(i));
        b.qp->add(b.write(i));
    }
    world.turn();
    world.fake.complete(a.raw, 1, IBV_WC_RETRY_EXC_ERR);
    world.fake.complete(b.raw, 40);
    world.turn();
    CHECK(a.user.count(IBV_WC_RETRY_EXC_ERR) == 1);
    CHECK(a.user.done.size() == 40);
    CHECK(b.user.count(IBV_WC_SUCCESS) == 40);
}

TEST_CASE("Rail.when_a_completion_queue_is_full_another_one_is_made_and_none_runs_over") {
    fake_device_options options;
    options.limits.max_cqe = 300;
    options.limits.max_srq_wr = 128;
    rail_world world(options);
    const auto on = world.make_rail();
    std::vector<std::unique_ptr<test_pair>> pairs;
    for (int i = 0; i < 9; ++i)
        pairs.push_back(std::make_unique<test_pair>(world, on, queue_pair_options{.send_depth = 64}));
    CHECK(world.fake.alive().cqs == 3); // 256 - 128 = 2 * 64 in the first, 300 / 64 = 4 in the others
    for (auto& pair : pairs)
        for (std::uintptr_t n = 1; n <= 64; ++n) pair->qp->add(pair->write(n));
    world.turn();
    for (auto& pair : pairs) world.fake.complete(pair->raw, 64);
    world.turn();
    for (auto& pair : pairs) CHECK(pair->user.count(IBV_WC_SUCCESS) == 64);
    // One that goes makes room for another.
    pairs.erase(pairs.begin(), pairs.begin() + 4);
    for (int i = 0; i < 4; ++i)
        pairs.push_back(std::make_unique<test_pair>(world, on, queue_pair_options{.send_depth = 64}));
    CHECK(world.fake.alive().cqs == 3);
    // One that fits in none is refused by number.
    rdma_cm_id* const id = world.make_id();
    const auto refused = queue_pair::create(on, id, {.send_depth = 400});
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == errc::out_of_resources);
    CHECK(refused.error().message().find("400 entries, fake0 allows 300 (max_cqe)") != std::string::npos);
    api().destroy_id(id);
}

TEST_CASE("Rail.a_completion_queue_that_breaks_ends_its_queue_pairs_and_no_others") {
    fake_device_options options;
    options.limits.max_cqe = 300;
    options.limits.max_srq_wr = 128;
    rail_world world(options);
    auto on = world.make_rail();
    std::vector<std::unique_ptr<test_pair>> pairs;
    for (int i = 0; i < 3; ++i)
        pairs.push_back(std::make_unique<test_pair>(world, on, queue_pair_options{.send_depth = 64}));
    for (auto& pair : pairs) pair->qp->add(pair->write(1));
    world.turn();
    SECTION("the second one: polling it fails") {
        world.fake.fail("poll_cq", 2, EIO);
        world.turn();
        CHECK(pairs[2]->user.count(IBV_WC_WR_FLUSH_ERR) == 1);
        CHECK(pairs[2]->user.events == std::vector{IBV_EVENT_CQ_ERR});
        CHECK(pairs[2]->qp->drained());
        CHECK(pairs[0]->user.done.empty());
        world.fake.complete(pairs[0]->raw, 1);
        world.fake.complete(pairs[1]->raw, 1);
        world.turn();
        CHECK(pairs[0]->user.count(IBV_WC_SUCCESS) == 1);
        CHECK(pairs[1]->user.count(IBV_WC_SUCCESS) == 1);
        CHECK(rail::existing(*world.home, *world.on) == on);
    }
    SECTION("the first one, of all receives: arming it fails") {
        world.fake.complete(pairs[0]->raw, 1);
        world.turn();
        // Both are armed when the executor sleeps for the first time.
        world.fake.fail("req_notify_cq", 1, EIO);
        world.fake.spurious_event(pairs[0]->raw->send_cq);
        sync_wait(*world.home, [](test_pair& pair) -> task<void> {
            event told;
            pair.user.when_done = [&] { told.set(); };
            static_cast<void>(co_await told.wait());
        }(*pairs[1]));
        CHECK(pairs[1]->user.count(IBV_WC_WR_FLUSH_ERR) == 1);
        CHECK(pairs[2]->user.count(IBV_WC_WR_FLUSH_ERR) == 1);
        CHECK(pairs[0]->user.events == std::vector{IBV_EVENT_CQ_ERR});
        CHECK(rail::existing(*world.home, *world.on) == nullptr); // others get a new one
    }
    for (auto& pair : pairs) pair->user.when_done = nullptr;
}

TEST_CASE("Rail.events_of_the_device_reach_those_whom_they_concern") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on), b(world, on);
    for (int i = 0; i < 100; ++i) world.fake.async_event(a.raw, IBV_EVENT_COMM_EST);
    world.fake.async_event(world.context, IBV_EVENT_PORT_ERR, 1);
    world.turn();
    CHECK(a.user.events == std::vector{IBV_EVENT_COMM_EST, IBV_EVENT_PORT_ERR});
    CHECK(b.user.events == std::vector{IBV_EVENT_PORT_ERR});
    b.qp->add(b.write(1));
    world.turn();
    world.fake.async_event(b.raw, IBV_EVENT_QP_FATAL);
    world.turn();
    CHECK(b.user.events[1] == IBV_EVENT_QP_FATAL);
    CHECK(b.user.count(IBV_WC_WR_FLUSH_ERR) == 1);
    a.qp->add(a.write(1));
    world.turn();
    world.fake.async_event(world.context, IBV_EVENT_DEVICE_FATAL);
    world.turn();
    world.turn();
    CHECK(a.user.events[2] == IBV_EVENT_DEVICE_FATAL);
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 1);
    CHECK(a.qp->drained());
}

TEST_CASE("Rail.goes_from_within_a_callback_of_its_last_queue_pair") {
    rail_world world;
    auto on = world.make_rail();
    auto a = std::make_unique<test_pair>(world, std::move(on));
    rdma_cm_id* const id = a->id;
    a->user.when_room = [&] {
        if (a->qp == nullptr || !a->qp->drained()) return;
        a->qp.reset(); // and with it the rail
    };
    a->qp->fail();
    world.turn();
    CHECK(a->qp == nullptr);
    CHECK(world.fake.alive().cqs == 0);
    CHECK(world.fake.alive().channels == 0);
    CHECK(a->id == id);
}

TEST_CASE("Rail.whichever_call_fails_while_it_is_made_all_is_given_back_and_the_call_is_named") {
    std::uint64_t calls = 0;
    {
        rail_world world;
        const std::uint64_t before = world.fake.calls();
        const auto on = world.make_rail();
        calls = world.fake.calls() - before;
    }
    for (std::uint64_t nth = 1; nth <= calls; ++nth) {
        rail_world world;
        world.fake.fail_any(nth, EINVAL);
        const auto before = world.fake.alive();
        const auto made = sync_wait(*world.home, rail::of(*world.on));
        const std::string failed = world.fake.failed();
        INFO("call " << nth << ", " << failed);
        if (made) continue; // get_cq_event and the like, which come later
        CHECK(made.error().message().find(failed) != std::string::npos);
        CHECK(world.fake.alive().all() == before.all());
    }
}

TEST_CASE("Rail.where_little_memory_may_be_locked_it_makes_do_with_fewer_slots") {
    rail_world world;
    world.fake.fail("create_cq", 1, ENOMEM);
    world.fake.fail("create_srq", 1, ENOMEM);
    const auto on = world.make_rail();
    CHECK(world.fake.calls("create_cq") == 3);
    const auto slots = on->add_slots(1, 1'000'000);
    REQUIRE(slots);
    CHECK(*slots == 3072);
    on->remove_slots(*slots);
}

TEST_CASE("Rail.a_device_without_shared_queues_is_refused_with_its_limits") {
    fake_device_options options;
    options.limits.max_srq_wr = 0;
    rail_world world(options);
    const auto made = sync_wait(*world.home, rail::of(*world.on));
    REQUIRE_FALSE(made);
    CHECK(made.error() == errc::unsupported);
    CHECK(made.error().message().find("max_srq_wr 0") != std::string::npos);
}
