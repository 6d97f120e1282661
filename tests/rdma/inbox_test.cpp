#include "tests/rdma/both_ends.hpp"

#include <catch2/catch_test_macros.hpp>

// Frames of a peer that says what can't be.

using namespace sluice;
using namespace sluice::testing;
using rdma::frame;
using rdma::frame_type;

namespace {

task<void> ends_with(two_ends& world, const frame& f, const char* says) {
    auto met = co_await meet(world);
    some_memory small(64);
    std::optional<shared_region> shared;
    outcome did;
    co_await shares(met.server, small.view(), access::remote_write, did, &shared);
    check_ended(did);
    world.world.deliver(met.of_server, bytes_of(f));
    const auto why = co_await met.server.closed();
    check_error(why, condition::protocol_error);
    if (!why) CHECK(mentions(why.error(), says));
}

void check_refused(const frame& f, const char* says) {
    two_ends world;
    world.world.automatic(true);
    check_ok(world.listen());
    world.run(ends_with(world, f, says));
}

} // namespace

TEST_CASE("Inbox.an_immediate_of_more_bytes_than_any_region_has_is_refused") {
    check_refused({.type = frame_type::immediate, .immediate = 7, .size = 65}, "a write of 65 bytes");
}

TEST_CASE("Inbox.a_goodbye_acknowledged_that_was_not_said_is_refused") {
    check_refused({.type = frame_type::goodbye_ack}, "frame goodbye_ack: ");
}
