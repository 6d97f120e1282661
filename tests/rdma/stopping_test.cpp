#include "tests/rdma/both_ends.hpp"

#include <sluice/operation.hpp>
#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>

// Operations that are stopped at whatever stage they are.

using namespace sluice;
using namespace sluice::testing;

namespace {

task<void> turns(int count) {
    for (int i = 0; i < count; ++i) static_cast<void>(co_await nop());
}

/// One end's operation is stopped after ever more turns. The other's must still have its counterpart.
task<void> large_messages(two_ends& world, bool stops_sender) {
    auto met = co_await meet(world, {.receive_credits = 8});
    some_memory from(100000), to(100000);
    for (int after = 0; after < 40; ++after) {
        INFO("stopped after " << after);
        outcome sent, received, again;
        scope stopped, other;
        (stops_sender ? stopped : other).spawn(sends(met.client, from.view(), sent));
        (stops_sender ? other : stopped).spawn(receives(met.server, to.view(), received));
        co_await turns(after);
        stopped.request_stop();
        static_cast<void>(co_await stopped.join());
        co_await settle();
        if (stops_sender && !received) { // it waits for the next message
            check_ended(sent, condition::canceled);
            co_await sends(met.client, from.view().first(10), again);
            check_ended(again);
        } else if (!stops_sender && !sent) { // nobody has it
            check_ended(received, condition::canceled);
            co_await receives(met.server, to.view(), again);
            check_ended(again);
        }
        static_cast<void>(co_await other.join());
        check_ended(stops_sender ? received : sent);
        CHECK(met.client.is_open());
        CHECK(met.server.is_open());
    }
    outcome closed, heard;
    scope s;
    s.spawn(closes(met.client, closed));
    s.spawn(waits_for_the_end(met.server, heard));
    static_cast<void>(co_await s.join());
    check_ended(closed);
    check_ended(heard);
}

task<void> reads(connection& c, remote_region from, region_view into, outcome& how) {
    auto r = co_await c.read(from, into);
    how = std::move(r);
}

/// A read of several pieces: success wins over the stop; else it was canceled, and the connection went with it if the
/// device had any of it.
task<void> one_read(two_ends& world, int after, bool executed) {
    auto met = co_await meet(world);
    some_memory from(std::size_t{5} << 20), to(std::size_t{5} << 20);
    from.data.back() = std::byte{3};
    std::optional<shared_region> shared;
    outcome did, read;
    co_await shares(met.server, from.view(), access::remote_read, did, &shared);
    check_ended(did);
    co_await settle();
    world.world.automatic(false);
    scope s;
    s.spawn(reads(met.client, shared->description(), to.view(), read));
    co_await turns(after);
    const bool device_had_it = !world.world.waiting(met.of_client).empty();
    if (executed) world.world.execute_all();
    s.request_stop();
    if (executed) world.world.automatic(true);
    static_cast<void>(co_await s.join());
    REQUIRE(read.has_value());
    if (*read) {
        CHECK(executed);
        CHECK(to.data.back() == std::byte{3});
    } else {
        check_error(*read, condition::canceled);
    }
    if (device_had_it && !executed) CHECK_FALSE(*read);
    world.world.automatic(true);
}

} // namespace

TEST_CASE("Stopping.large_messages_at_every_stage_leave_the_connection_and_the_other_end_alone") {
    for (const bool stops_sender : {false, true}) {
        two_ends world;
        world.world.automatic(true);
        check_ok(world.listen({.connection = {.receive_credits = 8}}));
        world.run(large_messages(world, stops_sender));
    }
}

TEST_CASE("Stopping.a_read_at_every_stage_ends_well_or_as_canceled") {
    for (int after = 0; after < 8; ++after)
        for (const bool executed : {false, true}) {
            INFO("after " << after << (executed ? ", the device was faster" : ""));
            two_ends world;
            world.world.automatic(true);
            check_ok(world.listen());
            world.run(one_read(world, after, executed));
        }
}
