#include "tests/rdma/both_ends.hpp"

#include <catch2/catch_test_macros.hpp>

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
    const bool of_port = event.type == IBV_EVENT_PORT_ERR || event.type == IBV_EVENT_DEVICE_FATAL;
    if (of_port) m.ends.world.async_event(m.ends.card, event.type, 1);
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

TEST_CASE("Rdma_closing.each_event_of_the_device_has_its_cause") {
    const char* const aimed = "aimed at memory that is not shared with it";
    const device_event events[] = {
        {IBV_EVENT_QP_ACCESS_ERR, condition::closed, aimed, 1},
        {IBV_EVENT_QP_REQ_ERR, condition::closed, aimed, 1},
        {IBV_EVENT_QP_FATAL, condition::closed, "gave the queue pair up", 0},
        {IBV_EVENT_PORT_ERR, condition::closed, "the port of the RDMA device fake0 went down", 0},
        {IBV_EVENT_DEVICE_FATAL, condition::closed, "failed or was removed", 0},
    };
    for (const auto& each : events) {
        two_ends ends;
        check_ok(ends.listen());
        ends.run(meet(ends, hears_of_it, each));
    }
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
