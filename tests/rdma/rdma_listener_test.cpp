#include "tests/rdma/fake_names.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/region.hpp>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <system_error>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;
using rdma::greeting;

namespace {

void request(two_ends& ends, std::span<const std::byte> greeting) {
    ends.world.connect_request(ends.world.listening().front(), greeting, 4, 4);
}
void request(two_ends& ends, const greeting& g) { request(ends, g.encode()); }

template <class Condition>
void wait_until(two_ends& ends, Condition done) {
    REQUIRE(ends.run(until(done)));
}

greeting::refusal last_refusal(two_ends& ends) {
    REQUIRE_FALSE(ends.world.rejects().empty());
    const auto told = greeting::decode(ends.world.rejects().back().private_data);
    REQUIRE(told);
    CHECK(told->what == greeting::kind::reject);
    return told->why;
}

} // namespace

TEST_CASE("Rdma_listener.listens_on_one_address_and_on_all_of_them") {
    for (const char* const on : {"rdma://10.0.0.1:0", "rdma://0.0.0.0:0", "auto://[::]:0"}) {
        two_ends ends;
        check_ok(ends.listen({}, on));
        const address at = ends.there();
        CHECK(at.port != 0);
        CHECK(at.host == address::parse(on)->host);
        CHECK(at.scheme == address::parse(on)->scheme);
        const auto body = [](two_ends& e) -> task<void> {
            auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
            check_ok(client);
            check_ok(server);
        };
        ends.run(body(ends));
    }
}

TEST_CASE("Rdma_listener.what_it_can_not_have_is_named_with_the_remedy") {
    const struct {
        const char* call;
        int cause;
        const char* on;
        int code;
        const char* says;
    } cases[] = {
        {"bind_addr", EADDRINUSE, "rdma://10.0.0.1:7471", EADDRINUSE, "another listener has port 7471"},
        {"listen", EADDRINUSE, "rdma://127.0.0.1:7471", EADDRINUSE, "no RDMA device has a loopback address"},
        {"bind_addr", ENODEV, "rdma://[::1]:7471", ENODEV, "no RDMA device has a loopback address"},
        {"bind_addr", EADDRNOTAVAIL, "rdma://10.0.0.1:7471", EADDRNOTAVAIL, "no RDMA device has this address"},
        {"bind_addr", ENODEV, "rdma://10.0.0.1:7471", EADDRNOTAVAIL, "no RDMA device has this address"},
        {"bind_addr", EADDRNOTAVAIL, "rdma://0.0.0.0:7471", EADDRINUSE, "another listener has port 7471"},
        {"listen", EADDRINUSE, "rdma://[::]:7471", EADDRINUSE, "another listener has port 7471"},
        {"bind_addr", EACCES, "rdma://10.0.0.1:80", EACCES, "CAP_NET_BIND_SERVICE"},
        {"listen", ENOMEM, "rdma://10.0.0.1:80", ENOMEM, "rdma_listen"},
        {"create_id", ENOMEM, "rdma://10.0.0.1:80", ENOMEM, "rdma_create_id"},
        {"create_event_channel", EACCES, "rdma://10.0.0.1:80", EACCES, "/dev/infiniband/rdma_cm"},
    };
    for (const auto& each : cases) {
        two_ends ends;
        ends.world.fail(each.call, 1, each.cause);
        const auto made = ends.listen({}, each.on);
        INFO(each.says);
        REQUIRE_FALSE(made);
        INFO(made.error().message());
        CHECK(made.error() == code_of(each.code));
        CHECK(mentions(made.error(), std::string("listen on ") + each.on));
        CHECK(mentions(made.error(), each.says));
    }
    two_ends ends;
    check_error(ends.listen({.reuse_port = true}), condition::unsupported);
    check_error(ends.listen({}, "tcp://@name"), condition::invalid);
}

TEST_CASE("Rdma_listener.of_several_addresses_the_first_error_counts_and_all_are_told") {
    const fake_name name("two.test", {"10.0.0.7", "10.0.0.8"});
    two_ends ends;
    ends.world.fail("bind_addr", 1, EADDRINUSE);
    ends.world.fail("bind_addr", 2, EADDRNOTAVAIL);
    const auto made = ends.listen({}, "rdma://two.test:7471");
    REQUIRE_FALSE(made);
    INFO(made.error().message());
    CHECK(made.error() == code_of(EADDRINUSE));
    CHECK(mentions(made.error(), "listen on rdma://two.test:7471: rdma://10.0.0.7:7471: rdma_bind_addr: another listener"));
    CHECK(mentions(made.error(), "; rdma://10.0.0.8:7471: rdma_bind_addr: no RDMA device has this address"));
    ends.world.fail("bind_addr", 1, EADDRNOTAVAIL);
    check_ok(ends.listen({}, "rdma://two.test:7471"));
    CHECK(ends.there().host == "10.0.0.8");
}

TEST_CASE("Rdma_listener.requests_that_are_no_greeting_are_refused_and_counted") {
    two_ends ends;
    check_ok(ends.listen());
    auto wrong_version = sample_request(1);
    wrong_version.version = 9;
    auto acceptance = sample_request(1);
    acceptance.what = greeting::kind::accept;
    std::vector<std::byte> no_lanes = sample_request(1).encode();
    no_lanes[7] = std::byte{0};
    const std::array garbage{std::byte{'G'}, std::byte{'E'}, std::byte{'T'}};
    const auto refused = [&](std::span<const std::byte> bytes, greeting::refusal why) {
        const auto before = ends.listener->rejected();
        request(ends, bytes);
        wait_until(ends, [&] { return ends.listener->rejected() == before + 1; });
        CHECK(last_refusal(ends) == why);
        CHECK(ends.ids() == 1);
    };
    refused({}, greeting::refusal::not_sluice);
    refused(garbage, greeting::refusal::not_sluice);
    refused(wrong_version.encode(), greeting::refusal::version);
    refused(acceptance.encode(), greeting::refusal::malformed);
    refused(no_lanes, greeting::refusal::malformed);
    refused(sample_request(7, 4, 2).encode(), greeting::refusal::malformed); // of a connection that there is not
    CHECK(ends.qps() == 0);
}

TEST_CASE("Rdma_listener.a_thousand_refused_peers_leave_nothing_behind") {
    two_ends ends;
    check_ok(ends.listen());
    for (int i = 0; i < 1000; ++i) request(ends, std::span<const std::byte>());
    wait_until(ends, [&] { return ends.listener->rejected() == 1000; });
    CHECK(ends.ids() == 1);
    CHECK(ends.world.rejects().size() == 1000);
}

TEST_CASE("Rdma_listener.every_event_while_a_lane_is_accepted_has_its_outcome") {
    for (const auto type : every_cm_event) {
        two_ends ends;
        check_ok(ends.listen());
        ends.world.hold("accept");
        request(ends, sample_request(1));
        wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
        rdma_cm_id* const lane = ends.world.accepts().front().id;
        INFO("event " << type);
        ends.world.cm_event(lane, type);
        ends.run(yields(3000));
        if (ends_set_up(type)) {
            wait_until(ends, [&] { return ends.listener->rejected() == 1; });
            CHECK(ends.qps() == 0);
            CHECK(ends.ids() == 1);
            continue;
        }
        if (type != RDMA_CM_EVENT_ESTABLISHED) ends.world.cm_event(lane, RDMA_CM_EVENT_ESTABLISHED);
        const auto made = ends.run(ends.listener->accept());
        check_ok(made);
        CHECK(ends.listener->rejected() == 0);
    }
}

TEST_CASE("Rdma_listener.a_peer_that_never_comes_through_is_dropped_in_time_and_holds_nobody_up") {
    two_ends ends;
    check_ok(ends.listen({.connection = {.connect_timeout = 500ms, .lanes = 4}}));
    ends.world.hold("accept");
    request(ends, sample_request(1));
    wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
    ends.world.release("accept");
    request(ends, sample_request(2)); // comes through though it is later
    const auto body = [](two_ends& e) -> task<void> {
        auto made = co_await e.listener->accept();
        check_ok(made);
        while (e.listener->rejected() == 0)
            static_cast<void>(co_await sleep_for(5ms)); // nobody needs to be in accept()
        CHECK(e.qps() == 1);
    };
    ends.run(body(ends));
}

TEST_CASE("Rdma_listener.a_peer_that_rejects_too_late_finds_the_queue_pair_gone") {
    two_ends ends;
    check_ok(ends.listen());
    ends.world.hold("accept");
    ends.world.hold_calls("destroy_qp", ends.card);
    request(ends, sample_request(1));
    wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
    ends.world.cm_event(ends.world.accepts().front().id, RDMA_CM_EVENT_UNREACHABLE);
    wait_until(ends, [&] { return ends.world.waiting_calls() == 1; });
    ends.world.cm_event(ends.world.accepts().front().id, RDMA_CM_EVENT_REJECTED);
    ends.run(yields(3000));
    ends.world.release_calls();
    wait_until(ends, [&] { return ends.listener->rejected() == 1; });
    CHECK(ends.qps() == 0);
}

TEST_CASE("Rdma_listener.a_request_that_is_not_answered_in_time_is_told_so") {
    two_ends ends;
    check_ok(ends.listen({.connection = {.connect_timeout = 20ms}}));
    std::array<std::byte, 64> memory{};
    const auto region = memory_region::create(memory);
    REQUIRE(region);
    ends.world.hold_calls("reg_mr", ends.card); // the device takes its time to know all memory
    request(ends, sample_request(1));
    wait_until(ends, [&] { return !ends.world.rejects().empty(); });
    CHECK(last_refusal(ends) == greeting::refusal::busy);
    ends.world.release_calls();
    wait_until(ends, [&] { return ends.listener->rejected() == 1; });
    CHECK(ends.world.rejects().size() == 1);
    CHECK(ends.world.accepts().empty());
}

TEST_CASE("Rdma_listener.over_iwarp_a_request_without_a_witness_is_refused") {
    two_ends ends(soft_iwarp());
    check_ok(ends.listen());
    request(ends, sample_request(1));
    wait_until(ends, [&] { return !ends.world.rejects().empty(); });
    CHECK(last_refusal(ends) == greeting::refusal::malformed);
    greeting good = sample_request(2);
    good.witness = {0x1000, 7};
    request(ends, good);
    wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
}

TEST_CASE("Rdma_listener.a_connection_whose_lanes_do_not_all_come_is_dropped_in_time") {
    fake_device_options silent;
    silent.tells_last_wqe = false; // draining takes its time
    two_ends ends(silent);
    check_ok(ends.listen({.connection = {.connect_timeout = 500ms, .lanes = 4}}));
    request(ends, sample_request(1, 3));
    wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
    request(ends, sample_request(1, 3, 2));
    wait_until(ends, [&] { return ends.world.accepts().size() == 2; });
    request(ends, sample_request(1, 3, 2)); // twice
    wait_until(ends, [&] { return ends.listener->rejected() == 1; });
    CHECK(last_refusal(ends) == greeting::refusal::malformed);
    request(ends, sample_request(1, 3, 0)); // twice
    wait_until(ends, [&] { return ends.listener->rejected() == 2; });
    CHECK(ends.qps() == 2);
    const auto body = [](two_ends& e) -> task<void> {
        while (e.listener->rejected() == 2) static_cast<void>(co_await sleep_for(5ms));
        CHECK(e.qps() == 0);
        CHECK(e.ids() == 1);
    };
    ends.run(body(ends));
}

TEST_CASE("Rdma_listener.further_lanes_may_come_in_any_order") {
    two_ends ends;
    check_ok(ends.listen({.connection = {.lanes = 16}}));
    request(ends, sample_request(1, 4));
    wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
    for (const std::uint8_t lane : {std::uint8_t{3}, std::uint8_t{1}, std::uint8_t{2}})
        request(ends, sample_request(1, 4, lane));
    const auto made = ends.run(ends.listener->accept());
    check_ok(made);
    CHECK(ends.qps() == 4);
}

TEST_CASE("Rdma_listener.no_more_connections_wait_than_its_backlog") {
    two_ends ends;
    check_ok(ends.listen({.backlog = 2}));
    for (unsigned i = 1; i <= 3; ++i) request(ends, sample_request(i));
    wait_until(ends, [&] { return ends.listener->rejected() == 1; });
    CHECK(last_refusal(ends) == greeting::refusal::busy);
    const auto client = ends.run(ends.connect());
    check_error(client, condition::busy);
    check_ok(ends.run(ends.listener->accept()));
    request(ends, sample_request(4)); // there is room again
    check_ok(ends.run(ends.listener->accept()));
    check_ok(ends.run(ends.listener->accept()));
}

TEST_CASE("Rdma_listener.many_first_requests_at_once_make_one_rail") {
    two_ends ends;
    check_ok(ends.listen());
    for (unsigned i = 0; i < 50; ++i) request(ends, sample_request(i));
    for (int i = 0; i < 50; ++i) check_ok(ends.run(ends.listener->accept()));
    CHECK(ends.world.calls("create_srq") == 1);
}

TEST_CASE("Rdma_listener.a_device_without_room_refuses_and_says_so") {
    two_ends ends;
    check_ok(ends.listen());
    for (std::uint64_t nth = 2; nth <= 20; ++nth)
        ends.world.fail("create_qp", nth, ENOMEM); // the first is the connecting end's
    const auto client = ends.run(ends.connect());
    check_error(client, condition::out_of_resources);
    CHECK(last_refusal(ends) == greeting::refusal::no_resources);
    ends.world.fail_no_more();
    check_ok(ends.run(ends.connect()));
}

TEST_CASE("Rdma_listener.a_rail_that_could_not_be_made_is_tried_again_for_the_next_peer") {
    for (const char* const call : {"alloc_pd", "create_srq", "create_cq", "create_comp_channel"}) {
        two_ends fresh;
        check_ok(fresh.listen());
        for (std::uint64_t nth = 1; nth <= 40; ++nth) fresh.world.fail(call, nth, ENOMEM); // smaller is tried as well
        INFO(call);
        request(fresh, sample_request(1));
        wait_until(fresh, [&] { return fresh.listener->rejected() == 1; });
        CHECK(last_refusal(fresh) == greeting::refusal::no_resources);
        fresh.world.fail_no_more();
        // Not for each: opening a device takes its time where there is much memory.
        for (unsigned i = 2; i <= 20; ++i) request(fresh, sample_request(i));
        wait_until(fresh, [&] { return fresh.listener->rejected() == 20; });
        for (unsigned i = 21; fresh.world.accepts().empty(); ++i) { // but after a second
            request(fresh, sample_request(i));
            wait_until(fresh, [&] { return fresh.listener->rejected() == i || !fresh.world.accepts().empty(); });
        }
        check_ok(fresh.run(fresh.listener->accept()));
    }
}

TEST_CASE("Rdma_listener.a_rail_that_broke_is_replaced_for_the_next_peer") {
    two_ends ends;
    ends.world.automatic(true);
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
        ibv_cq* const queue = e.world.init_of(e.world.queue_pairs().front()).recv_cq;
        e.world.async_event(queue, IBV_EVENT_CQ_ERR);
        co_await yields(3000);
        auto [next_client, next_server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(next_client);
        check_ok(next_server);
        for (ibv_qp* each : e.world.queue_pairs())
            if (each->state == IBV_QPS_RTS) CHECK(e.world.init_of(each).recv_cq != queue);
        auto [closed, seen] = co_await when_all((*next_client)->close(), (*next_server)->closed());
        check_ok(closed); // which takes frames both ways
        check_ok(seen);
    };
    ends.run(body(ends));
}

TEST_CASE("Rdma_listener.can_be_closed_at_any_moment") {
    for (int moment = 0; moment < 6000; moment = moment * 5 / 4 + 1) {
        two_ends ends;
        check_ok(ends.listen({.connection = {.lanes = 4}}));
        request(ends, sample_request(1));
        request(ends, sample_request(2, 3));
        ends.run(yields(moment));
        ends.listener->close();
        CHECK(ends.qps() == 0);
        CHECK(ends.ids() == 0);
        const auto made = ends.run(ends.listener->accept());
        check_error(made, condition::closed);
        ends.listener->close();
    }
}

TEST_CASE("Rdma_listener.close_frees_the_port_and_ends_accept") {
    two_ends ends;
    check_ok(ends.listen());
    const std::string at = ends.there().to_string();
    const auto body = [](two_ends& e) -> task<void> {
        const auto close_later = [](two_ends& to) -> task<void> {
            co_await yields(20);
            to.listener->close();
        };
        scope both;
        both.spawn(close_later(e));
        auto made = co_await e.listener->accept();
        static_cast<void>(co_await both.join());
        check_error(made, condition::closed);
    };
    ends.run(body(ends));
    check_ok(ends.listen({}, at));
    const auto refused = ends.listen({}, at);
    check_error(refused, condition::busy);
}

TEST_CASE("Rdma_listener.accept_ends_when_it_is_stopped_and_loses_no_connection") {
    two_ends ends;
    check_ok(ends.listen());
    stop_source stop;
    const auto body = [](two_ends& e, stop_source& s) -> task<connected> {
        const auto stop_later = [](stop_source& at) -> task<void> {
            co_await yields(20);
            at.request_stop();
        };
        scope both;
        both.spawn(stop_later(s));
        auto made = co_await e.listener->accept();
        static_cast<void>(co_await both.join());
        co_return made;
    };
    check_error(ends.run(body(ends, stop), stop.token()), condition::canceled);
    request(ends, sample_request(1));
    check_ok(ends.run(ends.listener->accept()));
}

TEST_CASE("Rdma_listener.says_so_when_its_device_goes") {
    two_ends ends;
    check_ok(ends.listen());
    request(ends, sample_request(1));
    wait_until(ends, [&] { return ends.world.accepts().size() == 1; });
    ends.run(yields(3000));
    ends.world.cm_event(ends.world.listening().front(), RDMA_CM_EVENT_DEVICE_REMOVAL);
    ends.run(yields(3000));
    check_ok(ends.run(ends.listener->accept())); // what came before is handed out
    const auto made = ends.run(ends.listener->accept());
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(ENODEV));
    CHECK(mentions(made.error(), "its RDMA device was removed"));
}
