#include "rdma/terms.hpp"
#include "tests/rdma/both_ends.hpp"

#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>
#include <algorithm>

// What an end sends, and what it takes from a peer that gives it no room.

using namespace sluice;
using namespace sluice::testing;
using rdma::frame;
using rdma::frame_type;

namespace {

/// A frame that is taken without an answer.
frame revoked() { return {.type = frame_type::revoked}; }

std::size_t credits_unread(two_ends& world, ibv_qp* of) {
    std::size_t count = 0;
    for (const auto& each : world.world.waiting(of))
        if (each.payload().at(0) == static_cast<std::byte>(frame_type::credit)) ++count;
    return count;
}

/// Frames that need slots alone, then messages; all are taken while the peer hears nothing.
task<void> takes_all_it_may(two_ends& world, std::uint32_t slots, std::uint32_t credits) {
    auto met = co_await meet(world, {.receive_credits = credits});
    world.world.automatic(false);
    const std::uint32_t messages = std::min(slots, credits);
    for (std::uint32_t i = messages; i < slots; ++i) {
        world.world.deliver(met.of_server, bytes_of(revoked()));
        co_await round_trips();
    }
    some_memory into(64);
    for (std::uint32_t i = 0; i < messages; ++i) {
        world.world.deliver(met.of_server, bytes_of({.type = frame_type::message}, 8));
        co_await round_trips();
        outcome got;
        co_await receives(met.server, into.view(), got);
        check_ended(got);
        co_await round_trips();
    }
    CHECK(met.server.is_open());
    CHECK(credits_unread(world, met.of_server) >= 1);
    CHECK(credits_unread(world, met.of_server) <= rdma::slots_kept_back);
    world.world.complete(met.of_server, world.world.waiting(met.of_server).size());
}

} // namespace

TEST_CASE("Outbox.credits_that_travel_alone_fit_into_the_slots_kept_back") {
    for (const std::uint32_t slots : {4U, 5U, 7U, 15U, 16U})
        for (std::uint32_t credits = 1; credits <= 64; credits += slots == 16 ? 1 : 3) {
            INFO(slots << " slots, " << credits << " credits");
            fake_device_options about;
            about.limits.max_srq_wr = static_cast<int>(20 + slots + 4); // the client comes first
            two_ends world(about);
            world.world.automatic(true);
            check_ok(world.listen({.connection = {.receive_credits = credits}}));
            world.run(takes_all_it_may(world, slots, credits));
        }
}

TEST_CASE("Outbox.a_large_write_with_immediate_is_cut") {
    fake_device_options about;
    for (auto& port : about.ports) port.attributes.max_msg_sz = 1U << 30;
    two_ends world(about);
    world.world.automatic(true);
    check_ok(world.listen());
    world.run([](two_ends& w) -> task<void> {
        auto met = co_await meet(w);
        some_memory from(std::size_t{20} << 20), to(std::size_t{20} << 20);
        from.data.back() = std::byte{5};
        std::optional<shared_region> shared;
        outcome did, got;
        co_await shares(met.server, to.view(), access::remote_write, did, &shared);
        check_ended(did);
        w.world.automatic(false);
        did.reset();
        scope s;
        s.spawn(writes_with_immediate(met.client, shared->description(), from.view(), did));
        co_await settle();
        const auto posted = w.world.waiting(met.of_client);
        CHECK(posted.size() == 16); // no more is in front of what comes later
        for (const auto& each : posted)
            for (const auto& part : each.parts) CHECK(part.length == 1U << 20);
        w.world.automatic(true);
        s.spawn(receives(met.server, to.view(), got));
        static_cast<void>(co_await s.join());
        check_ended(did);
        check_ended(got);
        CHECK(to.data.back() == std::byte{5});
    }(world));
}

TEST_CASE("Outbox.a_write_with_immediate_that_only_waits_for_a_credit_is_given_up_alone") {
    two_ends world;
    world.world.automatic(true);
    check_ok(world.listen({.connection = {.receive_credits = 1}}));
    world.run([](two_ends& w) -> task<void> {
        auto met = co_await meet(w, {.receive_credits = 1});
        some_memory from(64), to(64);
        std::optional<shared_region> shared;
        outcome did;
        co_await shares(met.server, to.view(), access::remote_write, did, &shared);
        outcome first, second, third;
        co_await sends(met.client, from.view(), first); // takes the credit
        check_ended(first);
        from.data[0] = std::byte{5};
        scope s;
        s.spawn(writes_with_immediate(met.client, shared->description(), from.view(), second));
        co_await settle();
        CHECK(to.data[0] == std::byte{5});
        s.request_stop();
        static_cast<void>(co_await s.join());
        check_ended(second, condition::canceled);
        CHECK(met.client.is_open());
        outcome got;
        co_await receives(met.server, to.view(), got);
        check_ended(got);
        co_await sends(met.client, from.view(), third);
        check_ended(third);
    }(world));
}

namespace {

enum class demand { same_region_again, regions_without_slots, frames_without_slots };

/// The peer hears all that it is sent, and never gives a slot back.
task<void> demands(two_ends& world, demand what, const char* says) {
    auto met = co_await meet(world);
    world.world.automatic(false);
    std::size_t sent = 0;
    for (; met.server.is_open() && sent < 5000; ++sent) {
        frame f = revoked();
        const auto number = static_cast<std::uint32_t>(sent);
        if (what != demand::frames_without_slots && (sent % 2 == 0 || what == demand::same_region_again))
            f = {.type = frame_type::shared, .access_bits = 1, .immediate = number, .key = 9, .size = 8, .address = 4096};
        if (what == demand::same_region_again) f.immediate = 5;
        if (what == demand::regions_without_slots && sent % 2 == 1) f.immediate = number - 1;
        world.world.deliver(met.of_server, bytes_of(f));
        co_await round_trips();
        if (what != demand::frames_without_slots)
            world.world.complete(met.of_server, world.world.waiting(met.of_server).size());
    }
    const auto why = co_await met.server.closed();
    check_error(why, condition::protocol_error);
    if (!why) CHECK(mentions(why.error(), says));
    CHECK(sent < 5000);
}

void check_demand(demand what, const char* says) {
    two_ends world;
    world.world.automatic(true);
    check_ok(world.listen());
    world.run(demands(world, what, says));
}

} // namespace

TEST_CASE("Outbox.a_peer_may_not_share_under_one_number_twice") {
    check_demand(demand::same_region_again, "generation 5 is there already");
}

TEST_CASE("Outbox.a_peer_that_shares_and_gives_no_slots_for_the_answers_is_bounded") {
    check_demand(demand::regions_without_slots, "wait for its slots");
}

TEST_CASE("Outbox.a_peer_may_not_spend_slots_that_were_not_given_back") {
    check_demand(demand::frames_without_slots, "more frames than the 16 slots");
}
