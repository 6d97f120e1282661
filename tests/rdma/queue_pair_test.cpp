#include <sluice/blocking.hpp>
#include <sluice/event.hpp>

#include "rdma/queue_pair.hpp"
#include "rdma/rail.hpp"
#include "tests/rdma/rail_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

using namespace sluice;
using namespace sluice::rdma;
using namespace std::chrono_literals;
using sluice::testing::fake_device_options;
using sluice::testing::rail_world;
using sluice::testing::recorder;
using sluice::testing::test_pair;

namespace {

bool in_order(const recorder& user) {
    for (std::size_t i = 0; i < user.done.size(); ++i)
        if (user.done[i].owner != i + 1) return false;
    return true;
}

/// A device that says only what it must, and gives back nothing unasked.
fake_device_options silent() {
    fake_device_options options;
    options.tells_last_wqe = false;
    return options;
}

/// Until its user hears that it is.
task<void> drained(test_pair& pair) {
    event told;
    pair.user.when_room = [&] {
        if (pair.qp->drained()) told.set();
    };
    if (!pair.qp->drained()) static_cast<void>(co_await told.wait());
    pair.user.when_room = nullptr;
}

/// Of the work that waits, which asks for a completion.
std::vector<bool> asks(rail_world& world, const test_pair& pair) {
    std::vector<bool> all;
    for (const auto& each : world.fake.waiting(pair.raw))
        all.push_back((each.request.send_flags & IBV_SEND_SIGNALED) != 0);
    return all;
}

} // namespace

TEST_CASE("Queue_pair.work_of_one_turn_is_posted_as_one_list_and_comes_back_in_order") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    for (std::uintptr_t i = 1; i <= 5; ++i) a.qp->add(a.write(i));
    CHECK(world.fake.waiting(a.raw).empty()); // not before the poll
    CHECK(a.qp->in_flight() == 5);
    CHECK(a.qp->room() == 123);
    world.turn();
    CHECK(on->counters().posts == 1);
    CHECK(on->counters().work_posted == 5);
    CHECK(asks(world, a) == std::vector<bool>{false, true, false, true, true});
    CHECK(a.user.done.empty());
    world.fake.complete(a.raw, 5);
    world.turn();
    CHECK(a.user.done.size() == 5);
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_SUCCESS) == 5);
    CHECK(a.user.rooms == 1);
    CHECK(on->counters().completions == 3);
    CHECK(a.qp->room() == 128);
}

TEST_CASE("Queue_pair.a_completion_is_asked_for_with_each_quarter_of_what_is_in_flight_and_every_64_KiB_and_the_last") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    const auto asked_of = [&](std::size_t count, std::size_t bytes) {
        for (std::uintptr_t i = 1; i <= count; ++i) a.qp->add(a.write(i, static_cast<std::uint32_t>(bytes)));
        world.turn();
        const auto asked = asks(world, a);
        world.fake.complete(a.raw, count);
        world.turn();
        return asked;
    };
    CHECK(asked_of(1, 8) == std::vector<bool>{true});
    CHECK(asked_of(4, 8) == std::vector<bool>(4, true));
    CHECK(asked_of(10, 8) == std::vector<bool>{false, false, true, false, false, true, false, false, true, true});
    CHECK(asked_of(8, 40000) == std::vector<bool>{false, true, false, true, false, true, false, true});
    CHECK(asked_of(6, 70000) == std::vector<bool>(6, true));
    CHECK(a.user.done.size() == 1 + 4 + 10 + 8 + 6);
}

TEST_CASE("Queue_pair.every_kind_of_work_arrives_at_the_device_as_it_was_given") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    a.memory.fill(std::byte{7});
    work read = a.write(1, 100);
    read.what = work::kind::read;
    read.local_key = 5;
    read.remote_address = 0x1000;
    read.remote_key = 6;
    work add = a.write(2, 8);
    add.what = work::kind::fetch_add;
    add.remote_address = 0x2000;
    add.remote_key = 7;
    add.operand = 42;
    work swap = add;
    swap.what = work::kind::compare_swap;
    swap.expected = 41;
    work large = a.write(4, 200);
    large.remote_address = 0x3000;
    large.remote_key = 8;
    work foreign = a.write(5, 8);
    foreign.inline_allowed = false;
    for (const work& w : {read, add, swap, a.write(3, 64), large, foreign, a.write(6, 0)}) a.qp->add(w);
    world.turn();
    const auto posted = world.fake.waiting(a.raw);
    REQUIRE(posted.size() == 7);
    CHECK(posted[0].request.opcode == IBV_WR_RDMA_READ);
    CHECK(posted[0].request.wr.rdma.remote_addr == 0x1000);
    CHECK(posted[0].request.wr.rdma.rkey == 6);
    REQUIRE(posted[0].parts.size() == 1);
    CHECK(posted[0].parts[0].addr == reinterpret_cast<std::uint64_t>(a.memory.data()));
    CHECK(posted[0].parts[0].length == 100);
    CHECK(posted[0].parts[0].lkey == 5);
    CHECK(posted[1].request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
    CHECK(posted[1].request.wr.atomic.remote_addr == 0x2000);
    CHECK(posted[1].request.wr.atomic.rkey == 7);
    CHECK(posted[1].request.wr.atomic.compare_add == 42);
    CHECK(posted[2].request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
    CHECK(posted[2].request.wr.atomic.compare_add == 41);
    CHECK(posted[2].request.wr.atomic.swap == 42);
    CHECK(posted[3].request.opcode == IBV_WR_RDMA_WRITE);
    CHECK(posted[3].inlined.size() == 64);
    CHECK(posted[4].inlined.empty()); // more than fits
    CHECK(posted[4].parts.size() == 1);
    CHECK(posted[4].request.wr.rdma.rkey == 8);
    CHECK((posted[5].request.send_flags & IBV_SEND_INLINE) == 0);
    CHECK(posted[6].parts.empty());
    CHECK((posted[6].request.send_flags & IBV_SEND_INLINE) == 0);
    world.fake.complete(a.raw, 7);
    world.turn();
    CHECK(a.user.done.size() == 7);
}

TEST_CASE("Queue_pair.frames_arrive_whole_inline_and_from_memory_of_their_own") {
    for (const std::uint32_t inline_bytes : {0U, 96U}) {
        rail_world world;
        const auto on = world.make_rail();
        test_pair a(world, on, {.inline_bytes = inline_bytes});
        test_pair b(world, on);
        world.fake.wire(a.raw, b.raw);
        const auto slots = on->add_slots(8, 8);
        REQUIRE(slots);
        std::iota(reinterpret_cast<unsigned char*>(a.memory.begin()), reinterpret_cast<unsigned char*>(a.memory.end()),
                  static_cast<unsigned char>(0));
        ibv_mr* const mr = api().reg_mr(world.on->pd(), a.memory.data(), a.memory.size(), IBV_ACCESS_LOCAL_WRITE);
        for (const std::uint16_t bytes : {std::uint16_t{0}, std::uint16_t{64}, std::uint16_t{200}}) {
            work w = a.frame(bytes + 1U, bytes);
            w.local_key = mr->lkey;
            a.qp->add(w);
        }
        world.turn();
        const auto posted = world.fake.waiting(a.raw);
        REQUIRE(posted.size() == 3);
        CHECK(posted[0].inlined.empty() == (inline_bytes == 0));
        CHECK(posted[1].inlined.size() == (inline_bytes == 0 ? 0U : 96U));
        CHECK(posted[2].parts.size() == 2);
        world.fake.execute_all();
        world.turn();
        REQUIRE(b.user.frames.size() == 3);
        for (const auto& each : b.user.frames) {
            const auto decoded = frame::decode(each);
            REQUIRE(decoded);
            CHECK(decoded->slots == decoded->payload_bytes + 1);
            CHECK(std::memcmp(each.data() + frame::header_bytes, a.memory.data(), decoded->payload_bytes) == 0);
        }
        CHECK(a.user.count(IBV_WC_SUCCESS) == 3);
        api().dereg_mr(mr);
        on->remove_slots(8);
    }
}

TEST_CASE("Queue_pair.work_after_fail_and_work_not_posted_yet_come_back_flushed_behind_what_was_posted") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    world.fake.flushes_at_once(false);
    a.qp->add(a.write(1));
    a.qp->add(a.write(2));
    world.turn();
    a.qp->add(a.write(3)); // waits to be posted
    a.qp->fail();
    a.qp->fail();
    a.qp->add(a.write(4));
    world.turn();
    CHECK(a.user.done.empty()); // the device has the first two still
    CHECK(world.fake.waiting(a.raw).size() == 2);
    CHECK_FALSE(a.qp->drained());
    world.fake.flush(a.raw);
    world.turn();
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 4);
    CHECK(a.qp->in_flight() == 0);
    world.turn();
    CHECK(a.qp->drained());
    a.qp->add(a.write(5));
    world.turn();
    CHECK(a.user.done.size() == 5);
    CHECK(world.fake.modifications(a.raw).size() == 1);
}

TEST_CASE("Queue_pair.the_first_failure_keeps_its_status_what_was_before_succeeded_the_rest_is_flushed") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    for (std::uintptr_t i = 1; i <= 6; ++i) a.qp->add(a.write(i));
    world.turn();
    world.fake.complete(a.raw, 2);
    world.fake.complete(a.raw, 1, IBV_WC_REM_ACCESS_ERR, 77);
    a.qp->add(a.write(7)); // posted by the turn that learns of it, or not at all
    world.turn();
    world.turn();
    REQUIRE(a.user.done.size() == 7);
    CHECK(in_order(a.user));
    CHECK(a.user.done[0].how.ok());
    CHECK(a.user.done[1].how.ok());
    CHECK(a.user.done[2].how.status == IBV_WC_REM_ACCESS_ERR);
    CHECK(a.user.done[2].how.vendor_error == 77);
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 4);
    CHECK(a.qp->drained());
}

TEST_CASE("Queue_pair.a_flush_that_passes_work_over_does_not_make_that_a_success") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    world.fake.flushes_at_once(false);
    for (std::uintptr_t i = 1; i <= 16; ++i) a.qp->add(a.write(i));
    world.turn();
    world.fake.complete(a.raw, 2); // without a completion each; some devices flush only what asked for one
    a.qp->fail();
    world.fake.flush(a.raw);
    world.turn();
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 16);
}

TEST_CASE("Queue_pair.a_refused_post_gives_back_everything_from_the_bad_one_on") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    a.qp->add(a.write(1));
    world.turn();
    world.fake.fail("post_send", 1, ENOMEM);
    for (std::uintptr_t i = 2; i <= 4; ++i) a.qp->add(a.write(i));
    world.turn();
    world.turn();
    REQUIRE(a.user.done.size() == 4);
    CHECK(in_order(a.user));
    CHECK(a.user.done[0].how.flushed());
    CHECK(a.user.done[1].how.status == IBV_WC_GENERAL_ERR);
    CHECK(a.user.done[1].how.refused == ENOMEM);
    CHECK(a.user.done[2].how.flushed());
    CHECK(a.user.done[3].how.flushed());
    CHECK(a.qp->drained());
}

TEST_CASE("Queue_pair.work_that_ended_unsignalled_before_a_post_was_refused_comes_back_too") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on, {.send_depth = 3}); // full: the marker takes the place of what was refused
    for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
    world.fake.stop_list(2, EINVAL);
    world.fake.flushes_at_once(false);
    world.turn();
    REQUIRE(world.fake.waiting(a.raw).size() == 3); // two of ours and the marker of the drain
    world.fake.complete(a.raw, 2);                  // they end well, and nothing says so
    CHECK(a.user.done.empty());
    world.fake.flush(a.raw);
    world.turn();
    REQUIRE(a.user.done.size() == 3);
    CHECK(in_order(a.user));
    CHECK(a.user.done[2].how.refused == EINVAL);
}

TEST_CASE("Queue_pair.a_refused_post_that_does_not_say_where_it_stopped_gives_back_nothing_before_the_drain") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
    world.fake.stop_list(3 - 1, EFAULT, false);
    world.fake.flushes_at_once(false);
    world.turn();
    CHECK(a.user.done.empty());
    world.fake.flush(a.raw);
    world.turn();
    REQUIRE(a.user.done.size() == 3);
    CHECK(in_order(a.user));
    CHECK(a.user.done[0].how.refused == EFAULT); // the reason, to be kept as the first failure
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 2);
}

TEST_CASE("Queue_pair.inline_is_probed_downwards_and_a_real_limit_is_named") {
    fake_device_options options;
    options.max_inline_bytes = 40;
    {
        rail_world world(options);
        const auto on = world.make_rail();
        test_pair a(world, on, {.inline_bytes = 96});
        CHECK(a.qp->inline_bytes() == 24);
        CHECK(world.fake.init_of(a.raw).sq_sig_all == 0);
        CHECK(world.fake.init_of(a.raw).qp_type == IBV_QPT_RC);
    }
    options.limits.max_sge = 1;
    rail_world world(options);
    const auto on = world.make_rail();
    rdma_cm_id* const id = world.make_id();
    const auto made = queue_pair::create(on, id);
    REQUIRE_FALSE(made);
    CHECK(made.error().message().find("2 segments (allowed 1)") != std::string::npos);
    CHECK(made.error().message().find("fake0") != std::string::npos);
    api().destroy_id(id);
}

TEST_CASE("Queue_pair.the_send_queue_is_cut_to_what_the_device_allows") {
    fake_device_options options;
    options.limits.max_qp_wr = 20;
    rail_world world(options);
    const auto on = world.make_rail();
    test_pair a(world, on);
    CHECK(a.qp->room() == 20);
    for (std::uintptr_t i = 1; i <= 20; ++i) a.qp->add(a.write(i));
    world.turn();
    world.fake.complete(a.raw, 20);
    world.turn();
    CHECK(in_order(a.user));
    CHECK(a.user.done.size() == 20);
}

TEST_CASE("Queue_pair.tune_sets_the_receiver_not_ready_timer_but_not_on_iwarp") {
    for (const auto transport : {IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP}) {
        fake_device_options options;
        options.transport = transport;
        rail_world world(options);
        const auto on = world.make_rail();
        test_pair a(world, on);
        CHECK(a.qp->tune());
        const auto modified = world.fake.modifications(a.raw);
        CHECK(modified.size() == (transport == IBV_TRANSPORT_IB ? 1U : 0U));
        if (!modified.empty()) CHECK(modified[0].min_rnr_timer == 12);
    }
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    world.fake.fail("modify_qp", 1, EINVAL);
    const auto failed = a.qp->tune();
    REQUIRE_FALSE(failed);
    CHECK(failed.error() == std::errc::invalid_argument);
}

TEST_CASE("Queue_pair.without_word_of_the_last_receive_it_counts_as_drained_after_a_while_and_says_so") {
    rail_world world(silent());
    const auto on = world.make_rail();
    test_pair a(world, on);
    a.qp->fail();
    world.turn();
    CHECK_FALSE(a.qp->drained());
    const int before = a.user.rooms;
    sync_wait(*world.home, drained(a));
    CHECK(a.user.rooms == before + 1);
    CHECK(a.user.events.empty());
}

TEST_CASE("Queue_pair.the_last_receive_is_an_event_after_which_it_is_drained") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    a.qp->add(a.write(1));
    world.turn();
    bool drained_when_told = false;
    a.user.when_event = [&] { drained_when_told = a.qp->drained(); };
    a.qp->fail();
    world.turn();
    CHECK(a.user.events == std::vector{IBV_EVENT_QP_LAST_WQE_REACHED});
    CHECK(drained_when_told);
    CHECK(a.qp->drained());
}

TEST_CASE("Queue_pair.a_device_that_keeps_work_back_is_made_to_let_go") {
    rail_world world(silent());
    const auto on = world.make_rail();
    test_pair a(world, on), b(world, on);
    world.fake.flushes_at_once(false);
    for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
    world.turn();
    SECTION("when told to drain at once") { CHECK_FALSE(a.qp->drain_now(20ms)); }
    SECTION("by the executor, after a second") {
        a.qp->fail();
        sync_wait(*world.home, drained(a));
    }
    SECTION("because it can't be moved to error") {
        world.fake.fail("modify_qp", 1, EIO);
        a.qp->fail();
        world.turn();
    }
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 3);
    CHECK(a.qp->drained());
    CHECK(world.fake.queue_pairs().size() == 1); // it is gone, so that its memory is safe
    a.qp->add(a.write(4));
    world.turn();
    CHECK(a.user.done.size() == 4);
    world.fake.flushes_at_once(true);
}

TEST_CASE("Queue_pair.completions_of_one_that_was_destroyed_are_dropped_even_by_its_number") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    auto old = std::make_unique<test_pair>(world, on);
    old->qp->add(old->write(1));
    world.turn();
    const auto posted = world.fake.waiting(old->raw);
    REQUIRE(posted.size() == 1);
    world.fake.complete(old->raw, 1);
    world.turn();
    ibv_cq* const cq = old->raw->send_cq;
    const std::uint32_t number = old->qp->number();
    old.reset();
    a.qp->add(a.write(1));
    world.turn();
    // What is left of the old one: by its own number, and, as if that had been given out again, by the new one's.
    world.fake.stray_completion(cq, posted[0].request.wr_id, number);
    world.fake.stray_completion(cq, posted[0].request.wr_id, a.qp->number());
    world.turn();
    CHECK(a.user.done.empty());
    world.fake.complete(a.raw, 1);
    world.turn();
    CHECK(a.user.done.size() == 1);
    // And its own, once more.
    world.fake.stray_completion(cq, world.fake.waiting(a.raw).empty() ? 0 : 1, a.qp->number());
    world.turn();
    CHECK(a.user.done.size() == 1);
}

TEST_CASE("Queue_pair.a_number_may_be_given_out_again_as_soon_as_its_queue_pair_was_destroyed") {
    rail_world world(silent());
    const auto on = world.make_rail();
    for (const bool on_a_helper_thread : {false, true}) {
        world.fake.next_queue_pair_number(0xFFFFFF);
        test_pair a(world, on);
        a.qp->add(a.write(1));
        world.turn();
        CHECK(a.qp->number() == 0xFFFFFF);
        if (on_a_helper_thread) {
            CHECK(a.qp->drain_now(20ms)); // the fake flushes at once
            a.qp->set_user(nullptr);
            std::thread([&] { a.qp.reset(); }).join();
        } else { // it lives on without its verbs object
            world.fake.fail("modify_qp", 1, EIO);
            a.qp->fail();
            world.turn();
        }
        world.fake.next_queue_pair_number(0xFFFFFF);
        test_pair b(world, on);
        CHECK(b.qp->number() == 0xFFFFFF);
        b.qp->add(b.write(1));
        world.turn();
        world.fake.complete(b.raw, 1);
        world.turn();
        CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 1);
        CHECK(b.user.count(IBV_WC_SUCCESS) == 1);
        CHECK(on->counters().queue_pairs == 1);
    }
}

TEST_CASE("Queue_pair.a_callback_may_add_fail_leave_and_destroy_another_one") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    auto b = std::make_unique<test_pair>(world, on);
    SECTION("add: what a completion makes room for is posted in the same turn") {
        a.qp->add(a.write(1));
        world.turn();
        a.user.when_done = [&] {
            if (a.user.done.size() < 5) a.qp->add(a.write(a.user.done.size() + 1));
        };
        for (int i = 0; i < 5; ++i) {
            world.fake.complete(a.raw, 1);
            world.turn();
        }
        CHECK(in_order(a.user));
        CHECK(a.user.done.size() == 5);
    }
    SECTION("fail") {
        for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
        world.turn();
        a.user.when_done = [&] { a.qp->fail(); };
        world.fake.complete(a.raw, 3);
        world.turn();
        CHECK(a.user.count(IBV_WC_SUCCESS) == 3);
    }
    SECTION("leave: nothing more is heard") {
        for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
        world.turn();
        a.user.when_done = [&] { a.qp->set_user(nullptr); };
        world.fake.complete(a.raw, 3);
        world.turn();
        CHECK(a.user.done.size() == 1);
        CHECK(a.qp->in_flight() == 0);
    }
    SECTION("destroy another one, whose completions are at hand, and itself") {
        a.qp->add(a.write(1));
        b->qp->add(b->write(1));
        world.turn();
        b->qp->fail(); // flushed, which nobody has seen yet
        while (!b->qp->drained()) world.turn();
        b->qp->set_user(nullptr);
        a.user.when_done = [&] {
            b->qp.reset();
            a.qp.reset();
        };
        world.fake.complete(a.raw, 1);
        world.turn();
        CHECK(a.qp == nullptr);
        CHECK(world.fake.queue_pairs().empty());
    }
}

TEST_CASE("Queue_pair.one_is_made_and_destroyed_on_another_thread_while_the_executor_polls") {
    rail_world world;
    const auto on = world.make_rail();
    test_pair a(world, on);
    for (int i = 0; i < 20; ++i) {
        rdma_cm_id* const id = world.make_id();
        recorder user;
        std::unique_ptr<queue_pair> made;
        sync_wait(*world.home,
                  [](rdma_cm_id* of, std::shared_ptr<rail> home, std::unique_ptr<queue_pair>& into) -> task<void> {
                      auto done = co_await run_blocking([&] { return queue_pair::create(home, of); });
                      if (done) into = std::move(*done);
                  }(id, on, made));
        REQUIRE(made != nullptr);
        world.fake.set_state(id->qp, IBV_QPS_RTS);
        made->set_user(&user);
        made->add(a.write(1));
        world.turn();
        CHECK(on->counters().queue_pairs == 2);
        world.fake.complete(id->qp, 1);
        made->fail();
        while (!made->drained()) world.turn();
        CHECK(user.done.size() == 1);
        made->set_user(nullptr);
        sync_wait(*world.home, [](std::unique_ptr<queue_pair>& which) -> task<void> {
            co_await run_blocking([&] { which.reset(); });
        }(made));
        world.turn();
        CHECK(on->counters().queue_pairs == 1);
        api().destroy_id(id);
    }
    CHECK(world.fake.queue_pairs().size() == 1);
}
