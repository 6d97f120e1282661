#include "rdma/private_memory.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/quirks.hpp"
#include "rdma/send_queue.hpp"
#include "tests/rdma/rail_fixture.hpp"
#include "tests/support/heap.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <random>

// Properties of posting and retiring, whatever the depth, the batches, the sizes, and when completions come.

using namespace sluice;
using namespace sluice::rdma;
using namespace std::chrono_literals;
using sluice::testing::fake_device_options;
using sluice::testing::rail_world;
using sluice::testing::recorder;
using sluice::testing::soft_iwarp;
using sluice::testing::test_pair;

namespace {

/// How much of the work is confirmed once the oldest `count` requests are done, which were not before: over iWARP only
/// reads do that.
std::size_t confirmed_by(rail_world& world, test_pair& a, std::size_t count, std::size_t before) {
    for (const auto& each : world.fake.waiting(a.raw)) {
        if (count-- == 0) break;
        if (each.request.opcode == IBV_WR_RDMA_READ) before = static_cast<std::uint32_t>(each.request.wr_id) + 1;
    }
    return before;
}

/// Adds `count` work requests in batches of at most `batch`, as room allows, and completes now and then some of what
/// was posted, until all have come back.
void run_through(rail_world& world, test_pair& a, std::uint32_t count, std::uint32_t batch, std::uint32_t bytes,
                 std::mt19937& random) {
    const auto some = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
    const bool by_reading = world.on->quirks().confirms_by_reading;
    std::uintptr_t next = 1;
    std::size_t idle = 0; // turns in which the device did all it could
    std::size_t confirmed = 0;
    while (a.user.done.size() < count && idle < 3) {
        for (std::uint32_t i = 0; i < batch && next <= count && a.qp->room() > 0; ++i, ++next)
            a.qp->add(next % 3 == 0 ? a.frame(next) : next % 7 < 2 ? a.read(next, bytes) : a.write(next, bytes));
        world.turn();
        if (by_reading) REQUIRE(a.user.done.size() <= confirmed);
        const std::size_t waiting = world.fake.waiting(a.raw).size();
        const std::size_t now = next > count || a.qp->room() == 0 ? waiting : some(waiting);
        if (by_reading) confirmed = confirmed_by(world, a, now, confirmed);
        world.fake.complete(a.raw, now);
        idle = now == 0 && next > count ? idle + 1 : 0;
    }
    world.turn();
    REQUIRE(a.user.done.size() == count);
    bool ordered = true;
    for (std::size_t i = 0; i < count; ++i) ordered = ordered && a.user.done[i].owner == i + 1;
    CHECK(ordered);
    CHECK(a.user.count(IBV_WC_SUCCESS) == count);
    CHECK(a.qp->in_flight() == 0);
}

} // namespace

TEST_CASE("Send_queue.every_work_comes_back_once_and_in_order_and_the_drain_always_ends") {
    std::mt19937 random(74);
    for (const std::uint32_t depth : {1U, 2U, 3U, 7U, 16U, 33U}) {
        for (const std::uint32_t batch : {1U, 2U, 5U, 40U}) {
            for (const std::uint32_t count : {1U, depth, depth + 1, 4 * depth + 3}) {
                for (const std::uint32_t bytes : {0U, 64U, 20000U, 70000U}) {
                    INFO("depth " << depth << ", batch " << batch << ", count " << count << ", bytes " << bytes);
                    rail_world world;
                    const auto on = world.make_rail();
                    test_pair a(world, on, {.send_depth = depth});
                    run_through(world, a, count, batch, bytes, random);
                }
            }
        }
    }
}

TEST_CASE("Send_queue.over_iwarp_every_work_comes_back_once_and_in_order_and_not_before_it_is_confirmed") {
    std::mt19937 random(75);
    const bool at_once = GENERATE(true, false);
    for (const std::uint32_t depth : {1U, 2U, 3U, 7U, 16U, 33U}) {
        for (const std::uint32_t batch : {1U, 2U, 5U, 40U}) {
            for (const std::uint32_t count : {1U, depth, depth + 1, 4 * depth + 3}) {
                for (const std::uint32_t bytes : {64U, 20000U}) {
                    INFO("depth " << depth << ", batch " << batch << ", count " << count << ", bytes " << bytes);
                    rail_world world(soft_iwarp());
                    world.fake.hands_over_at_once(at_once);
                    const auto on = world.make_rail();
                    test_pair a(world, on, {.send_depth = depth});
                    run_through(world, a, count, batch, bytes, random);
                }
            }
        }
    }
}

TEST_CASE("Send_queue.ten_thousand_works_through_a_queue_of_32") {
    std::mt19937 random(73);
    rail_world world(GENERATE(false, true) ? soft_iwarp() : fake_device_options());
    const auto on = world.make_rail();
    test_pair a(world, on, {.send_depth = 32});
    run_through(world, a, 10000, 32, 8, random);
    CHECK(on->counters().work_posted == 10000);
}

TEST_CASE("Send_queue.completions_late_and_in_any_order_between_queue_pairs_and_a_failure_at_any_time") {
    std::mt19937 random(13);
    const auto some = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
    const bool iwarp = GENERATE(false, true);
    for (int round = 0; round < 40; ++round) {
        INFO("round " << round << ", iWARP " << iwarp);
        rail_world world(iwarp ? soft_iwarp() : fake_device_options());
        world.fake.hands_over_at_once(round % 5 < 3);
        const auto on = world.make_rail();
        std::vector<std::unique_ptr<test_pair>> pairs;
        for (int i = 0; i < 4; ++i)
            pairs.push_back(std::make_unique<test_pair>(world, on, queue_pair_options{.send_depth = 9}));
        // Over iWARP one that keeps work back for 10 ms is given up; on a busy machine that is before the test ends.
        const auto lives = [&world](const test_pair& pair) {
            const auto all = world.fake.queue_pairs();
            return std::ranges::find(all, pair.raw) != all.end();
        };
        world.fake.flushes_at_once(round % 2 == 0);
        if (round % 4 == 3) world.fake.fail("post_send", 1 + some(20), ENOMEM);
        std::vector<std::uintptr_t> next(4, 1);
        std::size_t broken = pairs.size(); // none
        for (int step = 0; step < 60; ++step) {
            const std::size_t i = some(3);
            test_pair& a = *pairs[i];
            for (std::size_t n = some(9); n > 0 && a.qp->room() > 0; --n) a.qp->add(a.write(next[i]++));
            if (some(2) == 0) world.turn();
            const std::size_t ended = some(3);
            test_pair& b = *pairs[ended];
            if (!lives(b)) continue;
            const std::size_t ends = some(world.fake.waiting(b.raw).size());
            if (ended != broken) world.fake.complete(b.raw, ends); // what fails is followed by flushes only
            if (step == 50 && round % 3 == 1 && !world.fake.waiting(b.raw).empty()) {
                world.fake.complete(b.raw, 1, IBV_WC_RETRY_EXC_ERR);
                broken = ended;
            }
            if (step == 55) pairs[some(3)]->qp->fail();
        }
        for (std::size_t i = 0; i < 4; ++i) {
            test_pair& a = *pairs[i];
            a.qp->fail();
            world.turn();
            if (lives(a)) world.fake.flush(a.raw);
            while (!a.qp->drained()) world.turn();
            REQUIRE(a.user.done.size() == next[i] - 1);
            for (std::size_t n = 0; n < a.user.done.size(); ++n) REQUIRE(a.user.done[n].owner == n + 1);
            // Once one has failed nothing succeeds.
            const auto failed = std::ranges::find_if(a.user.done, [](const auto& d) { return !d.how.ok(); });
            CHECK(std::none_of(failed, a.user.done.end(), [](const auto& d) { return d.how.ok(); }));
        }
    }
}

TEST_CASE("Send_queue.positions_survive_the_end_of_their_32_bits") {
    // As many as that can't be run through; so the ring is looked at alone.
    rail_world world;
    auto memory = private_memory::create(*world.on, send_queue::header_memory_bytes(4));
    REQUIRE(memory);
    send_queue ring(4, 5, 0, std::move(*memory), 0xFFFF'FFFEU);
    work_chain chain;
    work w;
    w.what = work::kind::write;
    for (std::uintptr_t i = 1; i <= 4; ++i) {
        w.owner = reinterpret_cast<void*>(i);
        ring.push(w);
    }
    CHECK(ring.room() == 0);
    CHECK(ring.fill(chain) == 4);
    ring.mark_posted(4);
    CHECK(ring.covered_by(chain.requests[0].wr_id) == 1);
    CHECK(ring.covered_by(chain.requests[3].wr_id) == 4);
    CHECK(ring.covered_by(chain.requests[3].wr_id + 1) == 0);                      // not posted
    CHECK(ring.covered_by(chain.requests[3].wr_id ^ std::uint64_t{1} << 32) == 0); // of another generation
    for (std::uintptr_t i = 1; i <= 4; ++i) CHECK(ring.pop().owner == reinterpret_cast<void*>(i));
    CHECK(ring.covered_by(chain.requests[3].wr_id) == 0); // said before
    CHECK(ring.in_flight() == 0);
}

namespace {

/// The fake world allocates: what is allocated within its calls doesn't count.
struct heap_of_the_fake {
    static inline const verbs* fake = nullptr;
    static inline std::uint64_t allocations = 0;
    template <class Call>
    static auto uncounted(Call call) {
        const std::uint64_t before = sluice::testing::heap_allocations();
        const auto returned = call();
        allocations += sluice::testing::heap_allocations() - before;
        return returned;
    }
    /// To be put in before the rail is made.
    heap_of_the_fake() {
        fake = &api();
        table = *fake;
        table.post_send = [](ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
            return uncounted([&] { return fake->post_send(qp, list, bad); });
        };
        table.post_srq_recv = [](ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
            return uncounted([&] { return fake->post_srq_recv(srq, list, bad); });
        };
        table.poll_cq = [](ibv_cq* cq, int entries, ibv_wc* into) {
            return uncounted([&] { return fake->poll_cq(cq, entries, into); });
        };
        table.req_notify_cq = [](ibv_cq* cq, int solicited_only) {
            return uncounted([&] { return fake->req_notify_cq(cq, solicited_only); });
        };
        table.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void** cookie) {
            return uncounted([&] { return fake->get_cq_event(channel, cq, cookie); });
        };
        table.ack_cq_events = [](ibv_cq* cq, unsigned events) {
            static_cast<void>(uncounted([&] { return fake->ack_cq_events(cq, events), 0; }));
        };
        use_verbs(&table);
    }
    static std::uint64_t ours() { return sluice::testing::heap_allocations() - allocations; }
    verbs table;
};

struct counter final : queue_pair_user {
    std::uint64_t works = 0, frames = 0;
    void on_work_done(const work&, const completion&) noexcept override { ++works; }
    void on_frame(std::span<const std::byte>) noexcept override { ++frames; }
    void on_room() noexcept override {}
    void on_queue_pair_event(ibv_event_type) noexcept override {}
};

/// 50 times 20 works, all in one frame: of a task's own allocations there are none after the first.
task<void> rounds(rail_world& world, test_pair& a, std::uint64_t& allocated) {
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 20; ++i) a.qp->add(i % 2 == 0 ? a.frame(1) : a.write(2, 0));
        for (int turn = 0; turn < 8; ++turn) {
            const std::uint64_t before = heap_of_the_fake::ours();
            static_cast<void>(co_await nop());
            if (round > 0) allocated += heap_of_the_fake::ours() - before; // the first time needs what is kept then
            if (turn == 4) world.fake.execute_all();
        }
    }
}

} // namespace

TEST_CASE("Send_queue.steady_work_allocates_nothing") {
    rail_world world;
    heap_of_the_fake heap;
    const auto on = world.make_rail();
    const auto slots = on->add_slots(64, 64);
    REQUIRE(slots);
    test_pair a(world, on), b(world, on);
    counter user;
    a.qp->set_user(&user);
    b.qp->set_user(&user);
    world.fake.wire(a.raw, b.raw);
    std::uint64_t allocated = 0;
    sync_wait(*world.home, rounds(world, a, allocated));
    CHECK(user.works == 1000);
    CHECK(user.frames == 500);
    CHECK(allocated == 0);
    CHECK(on->counters().events > 0);
    on->remove_slots(64);
    a.qp->set_user(&a.user);
    b.qp->set_user(&b.user);
}
