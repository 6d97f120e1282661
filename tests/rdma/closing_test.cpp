#include "tests/rdma/both_ends.hpp"

#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <optional>
#include <utility>

// How connections end by what their device says.

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

/// What a device says, and how the connection ends.
struct device_event {
    ibv_event_type type;
    condition ends_with;
    const char* says;
    std::uint64_t refused;
};

/// Both ends, and the server's queue pair.
struct met {
    two_ends& ends;
    provider_connection& client;
    provider_connection& server;
    ibv_qp* qp;
};

task<void> meet(two_ends& ends, task<void> (*then)(met, const device_event&), const device_event& event) {
    auto [client, server] = co_await when_all(ends.connect(), ends.listener->accept());
    REQUIRE(client);
    REQUIRE(server);
    co_await then({ends, **client, **server, ends.world.queue_pairs().back()}, event);
}

task<void> hears_of_it(met m, const device_event& event) {
    const bool of_queue = event.type == IBV_EVENT_CQ_ERR;
    const bool of_port = event.type == IBV_EVENT_PORT_ERR || event.type == IBV_EVENT_DEVICE_FATAL;
    if (of_port) m.ends.world.async_event(m.ends.card, event.type, 1);
    else if (of_queue) m.ends.world.async_event(m.ends.world.init_of(m.qp).send_cq, event.type);
    else m.ends.world.async_event(m.qp, event.type);
    const auto why = co_await m.server.closed();
    check_error(why, event.ends_with);
    if (!why) CHECK(mentions(why.error(), event.says));
    CHECK_FALSE(m.server.is_open());
    CHECK(m.server.stats().refused_operations == event.refused);
    static_cast<void>(co_await m.client.closed());
}

task<void> close_it(provider_connection& c) { static_cast<void>(co_await c.close()); }

task<void> hears_of_it_after_the_goodbye(met m, const device_event& event) {
    m.ends.world.hold("disconnect");
    scope closing;
    closing.spawn(close_it(m.client));
    const bool heard = co_await until([&] { return !m.server.is_open(); });
    CHECK(heard);
    m.ends.world.async_event(m.qp, event.type);
    check_ok(co_await m.server.closed());
    CHECK(m.server.stats().refused_operations == event.refused);
    static_cast<void>(co_await closing.join());
}

} // namespace

namespace {

task<void> goes_while_its_device_speaks_of_a_lane(two_ends& ends, ibv_event_type what) {
    std::optional<both_ends> met(co_await meet(ends, {.lanes = 4}));
    const auto all = ends.world.queue_pairs();
    for (std::size_t of_client = 0; of_client < all.size(); of_client += 2)
        ends.world.async_event(all[of_client], what); // heard while the first lane drains
    met->client = connection();
    met.reset();
}

} // namespace

TEST_CASE("Rdma_closing.a_connection_that_is_destroyed_does_not_care_what_the_device_says_of_its_lanes") {
    for (const auto what : {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_SQ_DRAINED}) {
        for (const bool iwarp : {false, true}) {
            two_ends ends(iwarp ? soft_iwarp() : fake_device_options());
            ends.world.automatic(true);
            check_ok(ends.listen({.connection = {.lanes = 4}}));
            ends.run(goes_while_its_device_speaks_of_a_lane(ends, what));
            CHECK(ends.qps() == 0);
        }
    }
}

TEST_CASE("Rdma_closing.each_event_of_the_device_has_its_cause") {
    const char* const aimed = "aimed at memory that is not shared with it";
    const device_event events[] = {
        {IBV_EVENT_QP_ACCESS_ERR, condition::closed, aimed, 1},
        {IBV_EVENT_QP_REQ_ERR, condition::closed, aimed, 1},
        {IBV_EVENT_QP_FATAL, condition::closed, "gave the queue pair up", 0},
        {IBV_EVENT_PORT_ERR, condition::closed, "the port of the RDMA device fake0 went down", 0},
        {IBV_EVENT_DEVICE_FATAL, condition::closed, "failed or was removed", 0},
        {IBV_EVENT_CQ_ERR, condition::closed, "a completion queue of the RDMA device fake0 failed", 0},
    };
    for (const auto& each : events) {
        two_ends ends;
        check_ok(ends.listen());
        ends.run(meet(ends, hears_of_it, each));
    }
}

TEST_CASE("Rdma_closing.what_a_closed_connection_had_is_given_back_by_helper_threads") {
    two_ends ends;
    ends.world.automatic(true);
    check_ok(ends.listen({.connection = {.lanes = 2}}));
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect({.lanes = 2}), e.listener->accept());
        check_ok(client);
        check_ok(server);
        if (!client || !server) co_return;
        const auto ids_here = e.world.calls_here("destroy_id");
        auto ended = co_await when_all((*client)->close(), (*client)->close(), (*server)->close());
        check_ok(std::get<0>(ended));
        check_ok(std::get<1>(ended));
        check_ok(std::get<2>(ended));
        CHECK(e.qps() == 0);
        CHECK(e.ids() == 1); // the listener's
        CHECK(e.world.calls("destroy_qp") == 2 * 2);
        CHECK(e.world.calls_here("destroy_qp") == 0);
        CHECK(e.world.calls_here("destroy_id") == ids_here);
        check_ok(co_await (*client)->close()); // there is nothing left to be given back
    };
    ends.run(body(ends));
}

TEST_CASE("Rdma_closing.a_connection_that_is_dropped_gives_back_what_it_had_in_place") {
    two_ends ends;
    ends.world.automatic(true);
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
        if (!client || !server) co_return;
        client->reset();
        CHECK(e.world.calls_here("destroy_qp") == 1);
        static_cast<void>(co_await (*server)->close());
        CHECK(e.qps() == 0);
    };
    ends.run(body(ends));
}

namespace {

/// A change of GIDs was just told: waits until the rail has drawn its conclusions. It looks at one change after the
/// other, and asks for the port once each time, so once it looks at a further one, it has.
task<void> looked_twice(two_ends& ends) {
    for (int changes = 0; changes < 2; ++changes) {
        if (changes > 0) ends.world.async_event(ends.card, IBV_EVENT_GID_CHANGE, 1);
        const auto before = ends.world.calls("query_port");
        const bool looked = co_await until([&] { return ends.world.calls("query_port") > before; });
        CHECK(looked);
    }
    for (int turns = 0; turns < 4; ++turns) co_await yield(); // in the first, connections hear of it
}

} // namespace

TEST_CASE("Rdma_closing.a_connection_ends_when_its_own_address_is_removed_and_not_when_another_is") {
    fake_device_options with_two;
    auto& gids = with_two.ports[0].gids;
    gids.push_back(gids[0]);
    gids[1].gid.raw[15] = 77;
    gids[1].gid_index = 5;
    two_ends ends(with_two);
    ends.world.automatic(true);
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
        if (!client || !server) co_return;
        e.world.remove_gid(e.card, 1, 5);
        co_await looked_twice(e);
        CHECK((*client)->is_open());
        CHECK((*server)->is_open());
        e.world.remove_gid(e.card, 1, 0);
        for (auto* each : {client->get(), server->get()}) {
            const auto why = co_await each->closed();
            check_error(why, condition::closed);
            if (!why) CHECK(mentions(why.error(), (each->local_address() + ", was removed").c_str()));
            if (!why) CHECK(mentions(why.error(), "the RDMA device fake0"));
        }
        CHECK(e.world.calls_here("query_gid") == 0); // each is a call into the kernel
    };
    ends.run(body(ends));
}

TEST_CASE("Rdma_closing.a_table_that_can_not_be_read_ends_nothing") {
    two_ends ends;
    ends.world.automatic(true);
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
        if (!client || !server) co_return;
        e.world.fail("query_port", 1, EIO);
        e.world.fail("query_port", 2, EIO);
        e.world.remove_gid(e.card, 1, 0);
        co_await looked_twice(e);
        CHECK((*client)->is_open());
        auto [one, other] = co_await when_all((*client)->close(), (*server)->close());
        check_ok(one);
        check_ok(other);
    };
    ends.run(body(ends));
}

/// soft-iWARP says so of the answer to a read for which the peer, who is leaving, doesn't wait any more.
TEST_CASE("Rdma_closing.an_access_that_fails_after_the_goodbye_is_no_failure") {
    const device_event refused{IBV_EVENT_QP_REQ_ERR, condition::closed, "", 0};
    two_ends ends(soft_iwarp());
    ends.world.automatic(true);
    check_ok(ends.listen());
    ends.run(meet(ends, hears_of_it_after_the_goodbye, refused));
}

TEST_CASE("Rdma_closing.a_frame_longer_than_a_slot_is_the_peers_fault") {
    two_ends ends;
    ends.world.automatic(true);
    check_ok(ends.listen());
    ends.run([](two_ends& world) -> task<void> {
        auto met = co_await meet(world);
        world.world.deliver(met.of_client, std::vector<std::byte>(rdma::slot_bytes + 1));
        const auto why = co_await met.client.closed();
        check_error(why, condition::protocol_error);
        CHECK(mentions(why.error(), "sent a frame of more than 4128 bytes"));
        check_error(co_await met.server.closed(), condition::closed);
    }(ends));
}

namespace {

struct flushed_by {
    ibv_event_type type;
    const char* says;
};

/// The device gives the work back before its word of why is read.
task<void> work_comes_back_first(two_ends& world, const flushed_by& what) {
    auto met = co_await meet(world);
    some_memory small(64);
    world.world.automatic(false);
    outcome sent;
    scope s;
    s.spawn(sends(met.server, small.view(), sent));
    co_await settle();
    REQUIRE(world.world.waiting(met.of_server).size() == 1);
    world.world.set_state(met.of_server, IBV_QPS_ERR);
    if (what.type == IBV_EVENT_PORT_ERR) world.world.async_event(world.card, what.type, 1);
    else world.world.async_event(met.of_server, what.type);
    static_cast<void>(co_await s.join());
    check_ended(sent, condition::closed);
    if (!*sent) CHECK(mentions(sent->error(), what.says));
    const auto why = co_await met.server.closed();
    check_error(why, condition::closed);
    if (!why) CHECK(mentions(why.error(), what.says));
}

/// What is given up when the connection has failed already ends with that failure.
task<void> given_up_too_late(two_ends& world) {
    auto met = co_await meet(world);
    some_memory from(64), to(64);
    std::optional<shared_region> shared;
    outcome did;
    co_await shares(met.server, from.view(), access::remote_read, did, &shared);
    world.world.automatic(false);
    world.world.flushes_at_once(false);
    outcome read;
    scope s;
    s.spawn([](connection& c, remote_region what, region_view into, outcome& how) -> task<void> {
        auto r = co_await c.read(what, into);
        how = std::move(r);
    }(met.client, shared->description(), to.view(), read));
    co_await settle();
    world.world.async_event(met.of_client, IBV_EVENT_QP_FATAL);
    co_await until([&] { return !met.client.is_open(); });
    s.request_stop();
    co_await settle();
    world.world.flush(met.of_client);
    world.world.flush(met.of_server);
    world.world.flushes_at_once(true);
    static_cast<void>(co_await s.join());
    check_ended(read, condition::closed);
    if (!*read) CHECK(mentions(read->error(), "gave the queue pair up"));
}

/// The peer's program talks, and this end's device gets nothing through any more.
task<void> is_lost_though_it_talks(two_ends& world) {
    auto met = co_await meet(world, {.peer_timeout = std::chrono::seconds(1), .lanes = 2});
    world.world.automatic(false);
    some_memory from(64);
    outcome sent;
    scope s;
    s.spawn(sends(met.client, from.view(), sent));
    const auto lost = [&] {
        if (met.client.is_open()) world.world.deliver(met.of_client, bytes_of({.type = rdma::frame_type::revoked}));
        return !met.client.is_open();
    };
    while (!lost()) static_cast<void>(co_await sleep_for(std::chrono::milliseconds(100)));
    static_cast<void>(co_await s.join());
    const auto why = co_await met.client.closed();
    REQUIRE_FALSE(why);
    CHECK(why.error() == errc::peer_lost);
}

} // namespace

TEST_CASE("Rdma_closing.a_flush_is_explained_by_the_event_behind_it") {
    const flushed_by all[] = {
        {IBV_EVENT_QP_ACCESS_ERR, "aimed at memory that is not shared with it"},
        {IBV_EVENT_QP_REQ_ERR, "aimed at memory that is not shared with it"},
        {IBV_EVENT_QP_FATAL, "gave the queue pair up"},
        {IBV_EVENT_PORT_ERR, "went down"},
        {IBV_EVENT_COMM_EST, "closed the connection without a goodbye"}, // says nothing of it
    };
    for (const auto& each : all) {
        INFO(each.says);
        two_ends world;
        world.world.automatic(true);
        check_ok(world.listen());
        world.run(work_comes_back_first(world, each));
    }
}

TEST_CASE("Rdma_closing.what_is_given_up_after_the_failure_ends_with_the_failure") {
    two_ends world;
    world.world.automatic(true);
    check_ok(world.listen());
    world.run(given_up_too_late(world));
}

TEST_CASE("Rdma_closing.a_peer_whose_device_confirms_nothing_is_lost_though_its_frames_come") {
    two_ends world;
    world.world.automatic(true);
    check_ok(world.listen({.connection = {.lanes = 2}}));
    world.run(is_lost_though_it_talks(world));
}

namespace {

task<void> post_is_refused(two_ends& world, int reason, const char* says) {
    auto met = co_await meet(world);
    some_memory from(64), to(64);
    std::optional<shared_region> shared;
    outcome did;
    co_await shares(met.server, from.view(), access::remote_read, did, &shared);
    check_ended(did);
    co_await settle();
    world.world.fail("post_send", 1, reason);
    const auto read = co_await met.client.read(shared->description(), to.view());
    REQUIRE_FALSE(read);
    CHECK(mentions(read.error(), says));
    const auto why = co_await met.client.closed();
    REQUIRE_FALSE(why);
    CHECK(why.error() == condition::closed);
    CHECK(mentions(why.error(), says));
}

} // namespace

TEST_CASE("Rdma_closing.work_that_this_device_refuses_is_not_the_peers_refusal") {
    for (const bool iwarp : {false, true})
        for (const auto& [reason, says] : {std::pair{ENOMEM, "ibv_post_send on fake0"}, std::pair{EINVAL, "ibv_post_send on fake0"},
                                           std::pair{ENOTCONN, "closed the connection without a goodbye"}}) {
            INFO((iwarp ? "iWARP, " : "") << reason);
            two_ends world(iwarp ? soft_iwarp() : fake_device_options());
            world.world.automatic(true);
            check_ok(world.listen());
            world.run(post_is_refused(world, reason, says));
        }
}
