#include "rdma/queue_pair.hpp"
#include "rdma/rail.hpp"
#include "rdma/send_queue.hpp"
#include "tests/rdma/rail_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <csignal>
#include <string>

// Where a completed write or send says nothing of the peer: quirks::confirms_by_reading.

using namespace sluice;
using namespace sluice::rdma;
using sluice::testing::fake_device_options;
using sluice::testing::rail_world;
using sluice::testing::recorder;
using sluice::testing::soft_iwarp;
using sluice::testing::test_pair;

namespace {

bool in_order(const recorder& user) {
    for (std::size_t i = 0; i < user.done.size(); ++i)
        if (user.done[i].owner != i + 1) return false;
    return true;
}

/// What was posted: W, S and R, small when a completion is asked for, and C for a read of the peer's witness.
std::string shape(const rail_world& world, const rail& on, const test_pair& pair) {
    std::string seen;
    for (const auto& each : world.fake.waiting(pair.raw)) {
        const bool reads = each.request.opcode == IBV_WR_RDMA_READ;
        const bool asks = (each.request.send_flags & IBV_SEND_SIGNALED) != 0;
        char letter = reads ? 'R' : each.request.opcode == IBV_WR_SEND ? 'S' : 'W';
        if (reads && each.request.wr.rdma.rkey == on.witness()->key) letter = asks ? 'C' : '?';
        else if (asks) letter = static_cast<char>(letter - 'A' + 'a');
        seen += letter;
    }
    return seen;
}

} // namespace

TEST_CASE("Iwarp.writes_and_frames_are_done_when_the_peer_has_answered_the_read_behind_them") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    const auto slots = on->add_slots(8, 8);
    REQUIRE(slots);
    test_pair a(world, on), b(world, on);
    world.fake.wire(a.raw, b.raw);
    ibv_mr* const target = api().reg_mr(world.on->pd(), b.memory.data(), b.memory.size(),
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    a.memory.fill(std::byte{5});
    work write = a.write(1, 8);
    write.remote_address = reinterpret_cast<std::uint64_t>(b.memory.data());
    write.remote_key = target->rkey;
    a.qp->add(write);
    a.qp->add(a.frame(2));
    world.turn();
    REQUIRE(shape(world, *on, a) == "WSC");
    const auto posted = world.fake.waiting(a.raw);
    CHECK(posted[0].handed_over); // for the device they are done
    CHECK(posted[1].handed_over);
    CHECK(posted[2].request.wr_id == posted[1].request.wr_id);
    CHECK(posted[2].request.wr.rdma.remote_addr == on->witness()->address);
    REQUIRE(posted[2].parts.size() == 1);
    CHECK(posted[2].parts[0].length == 1);
    CHECK(a.user.done.empty());
    CHECK(b.memory[0] == std::byte{0});
    bool was_there = false;
    a.user.when_done = [&] { was_there = b.memory[0] == std::byte{5} && b.memory[7] == std::byte{5}; };
    world.fake.execute_all();
    world.turn();
    CHECK(was_there);
    CHECK(a.user.count(IBV_WC_SUCCESS) == 2);
    CHECK(in_order(a.user));
    CHECK(b.user.frames.size() == 1);
    api().dereg_mr(target);
    on->remove_slots(8);
}

TEST_CASE("Iwarp.only_reads_ask_for_completions_and_a_list_that_ends_with_one_needs_no_other") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    test_pair a(world, on, {.send_depth = 16}); // which asks for a completion after four
    const auto list = [&](const char* kinds) {
        for (; *kinds != 0; ++kinds) a.qp->add(*kinds == 'W' ? a.write(1) : *kinds == 'S' ? a.frame(1) : a.read(1));
        world.turn();
        const std::string seen = shape(world, *on, a);
        world.fake.complete(a.raw, seen.size());
        world.turn();
        CHECK(a.qp->in_flight() == 0);
        return seen;
    };
    CHECK(list("W") == "WC");
    CHECK(list("R") == "r");
    CHECK(list("WSR") == "WSr");
    CHECK(list("RW") == "RWC");
    CHECK(list("WWWWWWWWWW") == "WWWWCWWWWCWWC");
    CHECK(list("WWWRWRSRRR") == "WWWrWRSrRr");
    CHECK(on->counters().work_posted == 27);
}

TEST_CASE("Iwarp.a_list_as_long_as_there_are_is_confirmed_too") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    test_pair a(world, on, {.send_depth = 4 * work_chain::length_max}); // a list is never cut for its length
    for (std::uintptr_t i = 1; i <= work_chain::length_max + 1; ++i) a.qp->add(a.write(i));
    world.turn();
    const std::string full(work_chain::length_max, 'W');
    CHECK(shape(world, *on, a) == full + "CWC");
    CHECK(world.fake.waiting(a.raw)[work_chain::length_max].parts.size() == 1);
    world.fake.complete(a.raw, work_chain::length_max + 3);
    world.turn();
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_SUCCESS) == work_chain::length_max + 1);
}

TEST_CASE("Iwarp.the_device_has_room_for_a_read_behind_each_work_request") {
    fake_device_options options = soft_iwarp();
    options.limits.max_qp_wr = 21;
    rail_world world(options);
    const auto on = world.make_rail();
    test_pair a(world, on);
    CHECK(a.qp->room() == 10);
    CHECK(world.fake.init_of(a.raw).cap.max_send_wr == 20);
    for (std::uintptr_t i = 1; i <= 10; ++i) {
        a.qp->add(a.write(i));
        world.turn(); // a list each
    }
    REQUIRE(world.fake.waiting(a.raw).size() == 20);
    world.fake.complete(a.raw, 20);
    world.turn();
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_SUCCESS) == 10);
}

TEST_CASE("Iwarp.the_completion_queue_has_room_for_everything_flushed") {
    const bool iwarp = GENERATE(false, true);
    fake_device_options options = iwarp ? soft_iwarp() : fake_device_options();
    options.limits.max_srq_wr = 8; // as many sends has the rail's first completion queue
    rail_world world(options);
    const auto on = world.make_rail();
    test_pair a(world, on, {.send_depth = 8});
    CHECK((a.raw->send_cq != a.raw->recv_cq) == iwarp);
    world.fake.hands_over_at_once(false); // and says of each that it was flushed
    for (std::uintptr_t i = 1; i <= 8; ++i) {
        a.qp->add(a.write(i));
        world.turn();
    }
    a.qp->fail();
    CHECK(world.fake.queued_completions(a.raw->send_cq) == (iwarp ? 16 : 8));
    world.turn();
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 8);
}

TEST_CASE("Iwarp.a_flushed_read_of_the_witness_ends_nothing_twice") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    test_pair a(world, on);
    world.fake.flushes_at_once(false);
    world.fake.hands_over_at_once(false);
    for (std::uintptr_t i = 1; i <= 3; ++i) {
        a.qp->add(a.write(i));
        world.turn();
    }
    REQUIRE(shape(world, *on, a) == "WCWCWC");
    for (const std::size_t done : {1U, 1U, 2U, 2U, 3U, 3U}) {
        world.fake.complete(a.raw, 1, IBV_WC_WR_FLUSH_ERR);
        world.turn();
        CHECK(a.user.done.size() == done);
    }
    CHECK(in_order(a.user));
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 3);
}

TEST_CASE("Iwarp.nothing_that_a_failure_passed_over_has_succeeded_and_the_first_bears_the_reason") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    test_pair a(world, on);
    SECTION("the read of the witness fails") {
        for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
        world.turn();
        world.fake.complete(a.raw, 3); // handed over, and perhaps refused by the peer
        world.turn();
        CHECK(a.user.done.empty());
        world.fake.complete(a.raw, 1, IBV_WC_REM_OP_ERR, 7);
    }
    SECTION("a write fails") {
        world.fake.hands_over_at_once(false);
        for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
        world.turn();
        world.fake.complete(a.raw, 1);
        world.fake.complete(a.raw, 1, IBV_WC_REM_OP_ERR, 7);
    }
    world.turn();
    REQUIRE(a.user.done.size() == 3);
    CHECK(in_order(a.user));
    CHECK(a.user.done[0].how.status == IBV_WC_REM_OP_ERR);
    CHECK(a.user.done[0].how.vendor_error == 7);
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 2);
    CHECK(a.qp->drained());
}

TEST_CASE("Iwarp.work_before_a_refused_read_of_the_witness_comes_back_with_the_reason") {
    rail_world world(soft_iwarp());
    const auto on = world.make_rail();
    test_pair a(world, on, {.send_depth = 3});
    for (std::uintptr_t i = 1; i <= 3; ++i) a.qp->add(a.write(i));
    world.fake.stop_list(1, EINVAL); // each is a list of its own: the read behind the first
    world.turn();
    world.turn();
    REQUIRE(a.user.done.size() == 3);
    CHECK(in_order(a.user));
    CHECK(a.user.done[0].how.refused == EINVAL);
    CHECK(a.user.count(IBV_WC_WR_FLUSH_ERR) == 2);
    CHECK(a.qp->drained());
}

namespace {

/// As soft-iWARP does where the peer has closed the socket.
struct raising_posts {
    static inline const verbs* fake = nullptr;
    static inline int raised = 0;
    /// To be put in before the rail is made.
    raising_posts() {
        raised = 0;
        fake = &api();
        table = *fake;
        table.post_send = [](ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
            ++raised;
            pthread_kill(pthread_self(), SIGPIPE);
            return fake->post_send(qp, list, bad);
        };
        use_verbs(&table);
    }
    verbs table;
};

bool has_sigpipe(int (*ask)(sigset_t*)) {
    sigset_t set;
    sigemptyset(&set);
    ask(&set);
    return sigismember(&set, SIGPIPE) == 1;
}

} // namespace

TEST_CASE("Iwarp.posting_lets_no_sigpipe_through_and_leaves_the_signal_mask_alone") {
    rail_world world(soft_iwarp());
    raising_posts raising;
    const auto on = world.make_rail();
    test_pair a(world, on);
    for (std::uintptr_t i = 1; i <= 2; ++i) {
        a.qp->add(a.write(i));
        world.turn(); // on this thread, which would be ended
    }
    CHECK(raising_posts::raised == 2);
    CHECK_FALSE(has_sigpipe([](sigset_t* set) { return sigpending(set); }));
    CHECK_FALSE(has_sigpipe([](sigset_t* set) { return pthread_sigmask(SIG_BLOCK, nullptr, set); }));
    world.fake.complete(a.raw, 4);
    world.turn();
    CHECK(a.user.count(IBV_WC_SUCCESS) == 2);
}
