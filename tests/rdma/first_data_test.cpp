// Where the accepting end's device may miss what comes first: quirks::misses_first_data.
#include "tests/rdma/both_ends.hpp"

#include <sluice/sleep.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint8_t lanes = 2;

std::size_t empty_writes(const fake_verbs& world, ibv_qp* qp) {
    const auto all = world.waiting(qp);
    return static_cast<std::size_t>(std::ranges::count_if(
        all, [](const fake_work& w) { return w.request.opcode == IBV_WR_RDMA_WRITE && w.parts.empty(); }));
}

std::vector<ibv_qp*> of_client(const two_ends& ends) {
    std::vector<ibv_qp*> all = ends.world.queue_pairs(); // client and server in turn, by lane
    REQUIRE(all.size() == 2 * lanes);
    return {all[0], all[2]};
}

task<void> nudges_until_it_is_answered(two_ends& ends) {
    both_ends met = co_await meet(ends, {.lanes = lanes});
    for (ibv_qp* qp : of_client(ends)) {
        const bool nudged = co_await until([&] { return empty_writes(ends.world, qp) >= 3; });
        CHECK(nudged);
    }
    ends.world.execute_all();
    ends.world.automatic(true);
    co_await settle();
    const auto posts = ends.world.calls("post_send");
    static_cast<void>(co_await sleep_for(20ms)); // nudges would come
    CHECK(ends.world.calls("post_send") == posts);
    const auto sent = co_await met.client.send(std::uint32_t{4711});
    check_ok(sent);
    const auto got = co_await met.server.receive<std::uint32_t>();
    check_ok(got);
    if (got) CHECK(*got == 4711U);
}

task<void> says_it_is_ready_and_nothing_more(two_ends& ends) {
    const both_ends met = co_await meet(ends, {.lanes = lanes});
    static_cast<void>(co_await sleep_for(20ms));
    for (ibv_qp* qp : of_client(ends)) CHECK(empty_writes(ends.world, qp) == 0);
    ends.world.execute_all();
}

} // namespace

TEST_CASE("First_data.is_followed_by_more_until_it_is_answered_where_it_may_be_missed") {
    two_ends ends(soft_iwarp());
    check_ok(ends.listen({.connection = {.lanes = lanes}}));
    ends.run(nudges_until_it_is_answered(ends));
}

TEST_CASE("First_data.is_enough_elsewhere") {
    two_ends ends;
    check_ok(ends.listen({.connection = {.lanes = lanes}}));
    ends.run(says_it_is_ready_and_nothing_more(ends));
}
