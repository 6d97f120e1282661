// How connections to a listener come about, step by step.
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/blocking.hpp>
#include <sluice/region.hpp>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <latch>
#include <tuple>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;
using rdma::greeting;

namespace {

/// What a peer answers to the request that was made.
greeting welcome_to(two_ends& ends) {
    auto made = greeting::decode(ends.world.connects().back().private_data);
    REQUIRE(made);
    made->what = greeting::kind::accept;
    made->slots = 7;
    made->owner = 44;
    return *made;
}

} // namespace

TEST_CASE("Rdma_connect.meets_the_listener_with_one_lane_and_with_four") {
    for (const std::uint32_t lanes : {1U, 4U}) {
        two_ends ends;
        check_ok(ends.listen({.connection = {.lanes = 4, .operations_in_flight = 100, .receive_credits = 8}}));
        const auto body = [](two_ends& e, std::uint32_t n) -> task<void> {
            auto [client, server] =
                co_await when_all(e.connect({.lanes = n, .message_bytes_max = 5000}), e.listener->accept());
            check_ok(client);
            check_ok(server);
            if (!client || !server) co_return;
            CHECK(e.qps() == 2 * n);
            CHECK(e.ids() == 2 * n + 1);
            for (auto* each : {client->get(), server->get()}) {
                CHECK(each->capabilities().lanes == n);
                CHECK(each->capabilities().operations_in_flight == 100);
                CHECK(each->capabilities().message_bytes_max == 5000);
                CHECK(each->capabilities().atomics);
            }
            CHECK((*client)->choice() == "client");
            CHECK((*server)->choice() == "server");
            CHECK((*client)->peer_address() == e.there().to_string());
            CHECK((*server)->local_address() == (*client)->peer_address());
            CHECK((*server)->peer_address() == (*client)->local_address());
        };
        ends.run(body(ends, lanes));
        CHECK(ends.world.connects().size() == lanes);
        for (const auto& each : ends.world.connects()) {
            const auto request = greeting::decode(each.private_data);
            REQUIRE(request);
            CHECK(request->slots == 16);
            CHECK(request->owner == 11);
            CHECK(each.parameters.retry_count == 7);
            CHECK(each.parameters.rnr_retry_count == 7);
        }
        for (const auto& each : ends.world.accepts()) {
            const auto answer = greeting::decode(each.private_data);
            REQUIRE(answer);
            CHECK(answer->what == greeting::kind::accept);
            CHECK(answer->lanes == lanes);
            CHECK(answer->credits == 8);
            CHECK(answer->owner == 22);
            CHECK(answer->connection == greeting::decode(ends.world.connects()[0].private_data)->connection);
        }
        CHECK(ends.listener->rejected() == 0);
    }
}

TEST_CASE("Rdma_connect.asks_for_what_the_device_can_have_outstanding") {
    fake_device_options small;
    small.limits.max_qp_rd_atom = 300; // more than the field holds
    small.limits.max_qp_init_rd_atom = 5;
    two_ends ends(small);
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
    };
    ends.run(body(ends));
    REQUIRE(ends.world.connects().size() == 1);
    CHECK(ends.world.connects()[0].parameters.initiator_depth == 5);
    CHECK(ends.world.connects()[0].parameters.responder_resources == 255);
    REQUIRE(ends.world.accepts().size() == 1);
    CHECK(ends.world.accepts()[0].parameters.initiator_depth == 5);
    CHECK(ends.world.accepts()[0].parameters.responder_resources == 5); // no more than the peer starts at once
}

TEST_CASE("Rdma_connect.the_path_carries_what_the_smaller_port_of_the_two_does") {
    const auto with_mtu = [](ibv_mtu active) {
        fake_device_options about;
        about.ports[0].attributes.active_mtu = active;
        return about;
    };
    const auto [client_mtu, server_mtu, smaller] =
        GENERATE(std::tuple(IBV_MTU_4096, IBV_MTU_1024, 3), std::tuple(IBV_MTU_1024, IBV_MTU_4096, 3),
                 std::tuple(IBV_MTU_512, IBV_MTU_256, 1), std::tuple(IBV_MTU_4096, IBV_MTU_4096, 5));
    two_ends ends(with_mtu(client_mtu));
    ends.world.arrive_at(ends.world.add_device(with_mtu(server_mtu)));
    check_ok(ends.listen({.connection = {.lanes = 2}}));
    const auto body = [](two_ends& e, int expected) -> task<void> {
        auto [client, server] = co_await when_all(e.connect({.lanes = 2}), e.listener->accept());
        check_ok(client);
        check_ok(server);
        CHECK(e.qps() == 4);
        for (ibv_qp* qp : e.world.queue_pairs()) {
            CHECK(e.world.path_mtu(qp) == expected);
            CHECK(qp->state == IBV_QPS_RTS);
        }
    };
    ends.run(body(ends, smaller));
    for (const auto& each : ends.world.connects())
        CHECK(greeting::decode(each.private_data)->path_mtu == static_cast<int>(client_mtu));
    for (const auto& each : ends.world.accepts()) {
        CHECK(greeting::decode(each.private_data)->path_mtu == smaller);
        // A queue pair that is ready already is named by its number, so that librdmacm leaves it as it is.
        CHECK((each.parameters.qp_num != 0) == (server_mtu < client_mtu));
        CHECK((each.parameters.srq != 0) == (server_mtu < client_mtu));
    }
}

TEST_CASE("Rdma_connect.over_iwarp_no_mtu_is_agreed_on") {
    two_ends ends(soft_iwarp());
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
    };
    ends.run(body(ends));
    REQUIRE(ends.world.accepts().size() == 1);
    CHECK(greeting::decode(ends.world.connects()[0].private_data)->path_mtu == 0);
    CHECK(greeting::decode(ends.world.accepts()[0].private_data)->path_mtu == 0);
    CHECK(ends.world.calls("init_qp_attr") == 0);
}

/// soft-iWARP's connect returns only when TCP has connected, or given up.
TEST_CASE("Rdma_connect.over_soft_iwarp_the_executor_goes_on_while_the_kernel_connects") {
    const bool refused = GENERATE(false, true);
    two_ends ends(soft_iwarp());
    check_ok(ends.listen());
    ends.world.hold_calls("connect", ends.card);
    if (refused) ends.world.fail("connect", 1, ECONNREFUSED);
    const auto meanwhile = [](two_ends& e) -> task<void> {
        const bool connecting = co_await until([&] { return e.world.waiting_calls() == 1; });
        REQUIRE(connecting);
        e.world.release_calls();
    };
    const auto made = connect_while(ends, ends.there(), {}, meanwhile);
    if (!refused) {
        check_ok(made);
        return;
    }
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(ECONNREFUSED));
    CHECK(mentions(made.error(), "nobody listens there"));
    CHECK(ends.qps() == 0);
}

TEST_CASE("Rdma_connect.over_soft_iwarp_ends_in_time_and_when_stopped_while_the_kernel_connects") {
    const bool stopped = GENERATE(false, true);
    two_ends ends(soft_iwarp());
    check_ok(ends.listen());
    ends.world.hold_calls("connect", ends.card);
    const auto body = [](two_ends& e, bool stops) -> task<void> {
        scope work;
        connected made = errc::closed;
        const auto connects = [](two_ends& all, connected& into, connection_options options) -> task<void> {
            into = co_await all.connect(options);
        };
        work.spawn(connects(e, made, {.connect_timeout = stops ? 60s : 100ms}));
        const bool connecting = co_await until([&] { return e.world.waiting_calls() == 1; });
        CHECK(connecting);
        if (stops) work.request_stop();
        static_cast<void>(co_await work.join());
        REQUIRE_FALSE(made);
        if (stops) CHECK(made.error() == errc::canceled);
        else CHECK(mentions(made.error(), "not done within 100 ms (connection_options.connect_timeout); waited for its "
                                          "answer to the connection request"));
        CHECK(e.qps() == 0);
    };
    ends.run(body(ends, stopped)); // the call would have gone on for ever
    CHECK(ends.world.waiting_calls() == 0);
    ends.world.release_calls();
}

TEST_CASE("Rdma_connect.asks_for_one_read_at_least") {
    fake_device_options none;
    none.limits.max_qp_init_rd_atom = 0;
    two_ends ends(none);
    check_ok(ends.listen());
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
    };
    ends.run(body(ends));
    REQUIRE(ends.world.connects().size() == 1);
    CHECK(ends.world.connects()[0].parameters.initiator_depth == 1);
    REQUIRE(ends.world.accepts().size() == 1);
    CHECK(ends.world.accepts()[0].parameters.initiator_depth == 1);
}

TEST_CASE("Rdma_connect.tries_another_queue_pair_where_the_peer_still_knows_one_of_this_number") {
    constexpr int stale_connection = 10; // IB_CM_REJ_STALE_CONN
    for (const std::size_t refusals : {std::size_t{1}, std::size_t{5}, std::size_t{100}}) {
        two_ends ends;
        check_ok(ends.listen());
        ends.world.hold("connect");
        const auto refuse = [refusals](two_ends& e) -> task<void> {
            const std::size_t times = refusals;
            for (std::size_t n = 1; n <= times; ++n) {
                const bool asked = co_await until([&] { return e.world.connects().size() == n; });
                REQUIRE(asked);
                if (n == times) e.world.release("connect");
                e.world.cm_event(e.world.connects().back().id, RDMA_CM_EVENT_REJECTED, stale_connection);
                if (n == 6) break; // it gives up
            }
        };
        const auto made = connect_while(ends, ends.there(), {}, refuse);
        INFO(refusals);
        if (refusals <= 5) {
            check_ok(made);
            CHECK(ends.world.connects().size() == refusals + 1);
            continue;
        }
        check_error(made, condition::busy);
        CHECK(mentions(made.error(), "stale connection"));
        CHECK(ends.world.connects().size() == 6);
        CHECK(ends.qps() == 0);
    }
}

TEST_CASE("Rdma_connect.waits_for_a_device_that_is_opened_without_a_helper_thread") {
    two_ends ends;
    ends.world.hold_calls("reg_mr", ends.card);
    std::array<std::byte, 64> memory{};
    const auto region = memory_region::create(memory); // what opening registers
    REQUIRE(region);
    const auto body = [](two_ends& e) -> task<void> {
        scope all;
        const auto refused = [](two_ends& of) -> task<void> {
            static_cast<void>(of);
            const auto made = co_await two_ends::connect(nowhere, {});
            CHECK(made.error() == code_of(ECONNREFUSED));
        };
        const auto timed_out = []() -> task<void> {
            const auto made = co_await two_ends::connect(nowhere, {.connect_timeout = 50ms});
            check_error(made, condition::timed_out);
        };
        for (int i = 0; i < 6; ++i) all.spawn(refused(e)); // more than there are helper threads
        const bool opening = co_await until([&] { return e.world.waiting_calls() == 1; });
        CHECK(opening);
        co_await timed_out();
        bool ran = false;
        co_await run_blocking([&ran] { ran = true; });
        CHECK(ran);
        CHECK(e.world.waiting_calls() == 1);
        e.world.release_calls();
        static_cast<void>(co_await all.join());
    };
    ends.run(body(ends));
    CHECK(ends.world.calls("alloc_pd") == 1);
}

TEST_CASE("Rdma_connect.opens_a_device_though_all_helper_threads_wait_for_the_same") {
    two_ends ends;
    const auto body = [](two_ends& e) -> task<void> {
        std::latch names{1};
        scope all;
        const auto slow = [](std::latch& until) -> task<void> { co_await run_blocking([&until] { until.wait(); }); };
        const auto listener = [](ibv_context* card) -> task<void> {
            const auto opened = co_await run_blocking([card] { return rdma::device::of(card); });
            check_ok(opened);
        };
        const auto connecting = [](ibv_context* card) -> task<void> {
            const auto opened = co_await rdma::device::open(card);
            check_ok(opened);
        };
        for (int i = 0; i < 4; ++i) all.spawn(slow(names)); // as many as there are threads
        co_await yields(100);
        for (int i = 0; i < 4; ++i) all.spawn(listener(e.card));
        co_await yields(100);
        for (int i = 0; i < 2; ++i) all.spawn(connecting(e.card)); // behind those
        co_await yields(100);
        names.count_down();
        static_cast<void>(co_await all.join());
    };
    ends.run(body(ends));
    CHECK(ends.world.calls("alloc_pd") == 1);
}

TEST_CASE("Rdma_connect.can_be_stopped_at_any_moment") {
    for (const std::uint32_t lanes : {1U, 3U}) {
        bool was_canceled = false;
        bool was_done = false;
        for (int moment = 0; moment < 6000; moment = moment * 5 / 4 + 1) {
            two_ends ends;
            check_ok(ends.listen({.connection = {.lanes = 4}}));
            stop_source stop;
            const auto body = [](two_ends& e, std::uint32_t n, int when, stop_source& s) -> task<connected> {
                scope both;
                const auto stop_later = [](int at, stop_source& source) -> task<void> {
                    co_await yields(at);
                    source.request_stop();
                };
                both.spawn(stop_later(when, s));
                auto made = co_await e.connect({.lanes = n});
                static_cast<void>(co_await both.join());
                co_return made;
            };
            const auto made = ends.run(body(ends, lanes, moment, stop), stop.token());
            if (made) was_done = true;
            else was_canceled = true;
            if (!made) check_error(made, condition::canceled);
        }
        CHECK(was_canceled);
        static_cast<void>(was_done); // depends on the helper threads
    }
}

TEST_CASE("Rdma_connect.a_welcome_that_grants_more_than_was_asked_for_is_refused") {
    using change = void (*)(greeting&);
    const change changes[] = {[](greeting& g) { g.lanes = 2; },
                              [](greeting& g) { g.credits = 65; },
                              [](greeting& g) { g.operations_in_flight = 1025; },
                              [](greeting& g) { g.message_bytes_max += 1; },
                              [](greeting& g) { g.connection[3] ^= std::byte{1}; },
                              [](greeting& g) { g.what = greeting::kind::request; },
                              [](greeting& g) { g.version = 2; },
                              [](greeting&) {}};
    for (const change& apply : changes) {
        two_ends ends;
        ends.world.hold("connect");
        const auto meanwhile = [&apply](two_ends& e) -> task<void> {
            const change with = apply;
            const bool asked = co_await until([&] { return !e.world.connects().empty(); });
            REQUIRE(asked);
            greeting g = welcome_to(e);
            with(g);
            e.world.set_state(e.world.queue_pairs().front(), IBV_QPS_RTS);
            e.world.cm_event(e.world.ids().front(), RDMA_CM_EVENT_ESTABLISHED, 0, g.encode());
        };
        const auto made = connect_while(ends, nowhere, {}, meanwhile);
        const bool fine = &apply == std::end(changes) - 1;
        if (fine) check_ok(made);
        else check_error(made, condition::protocol_error);
        if (!made) CHECK(ends.qps() == 0);
    }
}

TEST_CASE("Rdma_connect.over_iwarp_each_end_tells_its_witness_and_elsewhere_none") {
    const bool iwarp = GENERATE(false, true);
    two_ends ends(iwarp ? soft_iwarp() : fake_device_options());
    ends.world.automatic(true);
    check_ok(ends.listen({.connection = {.lanes = 2}}));
    const auto body = [](two_ends& e) -> task<void> {
        auto [client, server] = co_await when_all(e.connect({.lanes = 2}), e.listener->accept());
        check_ok(client);
        check_ok(server);
        auto [closed, seen] = co_await when_all((*client)->close(), (*server)->closed());
        check_ok(closed); // which takes frames both ways
        check_ok(seen);
    };
    ends.run(body(ends));
    const auto told = [&](const std::vector<fake_verbs::connected>& all) {
        REQUIRE(all.size() == 2);
        for (const auto& each : all) {
            CHECK(each.private_data.size() == (iwarp ? 60 : 48));
            const auto g = greeting::decode(each.private_data);
            REQUIRE(g);
            REQUIRE(g->witness.has_value() == iwarp);
            const auto known = ends.world.registrations(ends.card);
            const auto is_it = [&](const auto& r) {
                return r.mr->rkey == g->witness->key &&
                       reinterpret_cast<std::uint64_t>(r.mr->addr) == g->witness->address;
            };
            if (!iwarp) continue;
            const auto found = std::ranges::find_if(known, is_it);
            REQUIRE(found != known.end());
            CHECK(found->access == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
        }
    };
    told(ends.world.connects());
    told(ends.world.accepts());
}

TEST_CASE("Rdma_connect.over_iwarp_a_welcome_without_a_witness_is_refused") {
    two_ends ends(soft_iwarp());
    ends.world.hold("connect");
    const auto meanwhile = [](two_ends& e) -> task<void> {
        const bool asked = co_await until([&] { return !e.world.connects().empty(); });
        REQUIRE(asked);
        greeting g = welcome_to(e);
        g.witness.reset();
        e.world.set_state(e.world.queue_pairs().front(), IBV_QPS_RTS);
        e.world.cm_event(e.world.ids().front(), RDMA_CM_EVENT_ESTABLISHED, 0, g.encode());
    };
    const auto made = connect_while(ends, nowhere, {}, meanwhile);
    check_error(made, condition::protocol_error);
    CHECK(mentions(made.error(), "without a witness"));
}

TEST_CASE("Rdma_connect.crossed_connects_make_a_connection_each") {
    two_ends ends;
    check_ok(ends.listen());
    auto other = ends.run(rdma::rdma_listen(*address::parse("rdma://10.0.0.1:0"), {}, {.choice = "other", .owner = 3}));
    REQUIRE(other);
    const auto body = [](two_ends& e, detail::provider_listener& second) -> task<void> {
        for (int round = 0; round < 20; ++round) {
            auto [a, b, c, d] = co_await when_all(e.connect(), two_ends::connect(second.address(), {}),
                                                  e.listener->accept(), second.accept());
            check_ok(a);
            check_ok(b);
            check_ok(c);
            check_ok(d);
        }
    };
    ends.run(body(ends, **other));
    other->reset();
}
