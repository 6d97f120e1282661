#include "tests/rdma/fake_names.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/runtime.hpp>

#include <sluice/blocking.hpp>
#include <sluice/region.hpp>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cerrno>
#include <latch>
#include <tuple>
#include <system_error>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;
using rdma::greeting;

namespace {

std::error_code code_of(int value) { return {value, std::generic_category()}; }

/// Runs a connect beside `meanwhile`, which gets the world.
template <class Meanwhile>
connected connect_while(two_ends& ends, address to, const connection_options& options, Meanwhile meanwhile) {
    const auto body = [](two_ends& e, address at, connection_options o, Meanwhile m) -> task<connected> {
        scope both;
        both.spawn(m(e));
        auto made = co_await two_ends::connect(std::move(at), o);
        static_cast<void>(co_await both.join());
        co_return made;
    };
    return ends.run(body(ends, std::move(to), options, std::move(meanwhile)));
}

const address nowhere = *address::parse("rdma://10.0.0.9:7471");

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

TEST_CASE("Rdma_connect.says_so_when_nobody_listens") {
    two_ends ends;
    const auto made = ends.run(two_ends::connect(nowhere, {}));
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(ECONNREFUSED));
    CHECK(mentions(made.error(), "connect to rdma://10.0.0.9:7471: "));
    CHECK(mentions(made.error(), "nobody listens there"));
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

TEST_CASE("Rdma_connect.says_so_when_no_device_leads_there") {
    two_ends ends;
    ends.world.route_to(nullptr);
    const auto made = ends.run(two_ends::connect(nowhere, {}));
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(EHOSTUNREACH));
    CHECK(mentions(made.error(), "10.0.0.9:7471"));
    ends.world.fail("resolve_addr", 1, ENODEV); // some kernels say it at once
    const auto at_once = ends.run(two_ends::connect(nowhere, {}));
    REQUIRE_FALSE(at_once);
    CHECK(at_once.error() == code_of(EHOSTUNREACH));
}

TEST_CASE("Rdma_connect.asks_again_for_an_address_that_the_kernel_could_not_resolve_in_a_while") {
    two_ends ends;
    check_ok(ends.listen());
    ends.world.hold("resolve_addr");
    const auto time_out_twice = [](two_ends& e) -> task<void> {
        for (const std::uint64_t round : {1U, 2U}) {
            const bool asked = co_await until([&] { return e.world.calls("resolve_addr") == round; });
            REQUIRE(asked);
            if (round == 2) e.world.release("resolve_addr");
            e.world.cm_event(e.world.ids().back(), RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
        }
    };
    check_ok(connect_while(ends, ends.there(), {.connect_timeout = 1min}, time_out_twice));
    CHECK(ends.world.resolve_times() == std::vector{10, 20, 40});
}

TEST_CASE("Rdma_connect.an_address_of_a_name_that_leads_nowhere_is_passed_over") {
    const fake_name name("three.test", {"10.0.0.7", "10.0.0.8", "10.0.0.1"});
    two_ends ends;
    check_ok(ends.listen());
    for (const char* const each : {"10.0.0.7", "10.0.0.8"}) ends.world.route_from(each, nullptr);
    address to = ends.there();
    to.host = "three.test";
    const auto made = ends.run(two_ends::connect(to, {}));
    check_ok(made);
    CHECK((*made)->peer_address() == ends.there().to_string());
    CHECK(ends.world.calls("resolve_addr") == 3);
    ends.world.route_from("10.0.0.1", nullptr);
    const auto none = ends.run(two_ends::connect(to, {}));
    REQUIRE_FALSE(none);
    CHECK(none.error() == code_of(EHOSTUNREACH));
    CHECK(mentions(none.error(), "connect to rdma://three.test:"));
    CHECK(mentions(none.error(), ": rdma://10.0.0.1:")); // the last
}

TEST_CASE("Rdma_connect.an_address_of_a_name_that_does_not_answer_has_its_share_of_the_time") {
    const fake_name name("two.test", {"10.0.0.7", "10.0.0.1"});
    two_ends ends;
    check_ok(ends.listen());
    ends.world.hold("resolve_addr");
    address to = ends.there();
    to.host = "two.test";
    const auto answer_the_second = [](two_ends& e) -> task<void> {
        const bool asked = co_await until([&] { return e.world.calls("resolve_addr") == 1; });
        REQUIRE(asked);
        e.world.release("resolve_addr");
    };
    const auto made = connect_while(ends, to, {.connect_timeout = 4s}, answer_the_second);
    check_ok(made);
    CHECK((*made)->peer_address() == ends.there().to_string());
}

TEST_CASE("Rdma_connect.a_peer_that_can_not_be_talked_to_is_not_looked_for_at_another_address") {
    const fake_name name("two.test", {"10.0.0.7", "10.0.0.8"});
    two_ends ends;
    ends.world.hold("connect");
    const auto refuse = [](two_ends& e) -> task<void> {
        const bool asked = co_await until([&] { return e.world.connects().size() == 1; });
        REQUIRE(asked);
        greeting no;
        no.what = greeting::kind::reject;
        no.why = greeting::refusal::version;
        e.world.cm_event(e.world.ids().front(), RDMA_CM_EVENT_REJECTED, 28, no.encode());
    };
    const auto made = connect_while(ends, *address::parse("rdma://two.test:7471"), {}, refuse);
    REQUIRE_FALSE(made);
    CHECK(made.error() == errc::version_mismatch);
    CHECK(mentions(made.error(), "connect to rdma://two.test:7471: rdma://10.0.0.7:7471: "));
    CHECK(ends.world.calls("resolve_addr") == 1);
}

TEST_CASE("Rdma_connect.a_path_without_a_device_says_what_to_connect_to") {
    two_ends ends;
    ends.world.fail("resolve_route", 1, ENODEV); // as for 127.0.0.1, which the kernel resolves to any device
    const auto made = ends.run(two_ends::connect(nowhere, {}));
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(EHOSTUNREACH));
    CHECK(mentions(made.error(), "use the address of a device's netdev, not that of the loopback"));
}

TEST_CASE("Rdma_connect.and_listen_are_refused_where_rdma_is_off") {
    fake_verbs world;
    world.add_device();
    {
        auto rt = runtime::create({.pool_bytes = 4 << 20, .rdma = mode::off, .pin = false}).value();
        const auto connects = [](runtime& on) -> task<result<connection>> {
            auto made = co_await on.connect("rdma://10.0.0.1:7471");
            co_return made;
        };
        const auto listens = [](runtime& on) -> task<result<listener>> {
            auto made = co_await on.listen("rdma://10.0.0.1:7471");
            co_return made;
        };
        const auto made = rt.sync_wait(connects(rt));
        check_error(made, condition::unsupported);
        CHECK(mentions(made.error(), "rdma://10.0.0.1:7471: rdma is off (runtime_options.rdma)"));
        check_error(rt.sync_wait(listens(rt)), condition::unsupported);
    }
    rdma::device::close_all();
}

TEST_CASE("Rdma_connect.unix_sockets_are_refused") {
    two_ends ends;
    const auto made = ends.run(two_ends::connect(*address::parse("tcp://@sluice"), {}));
    check_error(made, condition::invalid);
}

TEST_CASE("Rdma_connect.every_event_at_every_step_has_its_outcome") {
    for (const char* const step : {"resolve_addr", "resolve_route", "connect"}) {
        for (const auto type : every_cm_event) {
            two_ends ends;
            ends.world.hold(step);
            INFO(step << ", event " << type);
            const auto meanwhile = [step, type](two_ends& e) -> task<void> {
                const std::string name(step);
                const auto what = type;
                const bool asked = co_await until([&] { return e.world.calls(name) == 1; });
                CHECK(asked);
                e.world.cm_event(e.world.ids().front(), what);
                co_await yields(2000);
            };
            const bool ends_it = ends_set_up(type);
            // Of the others none makes a connection out of nothing: the one that fits leads on to the refusal, or comes
            // without a greeting.
            const bool no_greeting = type == RDMA_CM_EVENT_ESTABLISHED && std::string(step) == "connect";
            const bool next_refuses = (type == RDMA_CM_EVENT_ADDR_RESOLVED && std::string(step) == "resolve_addr") ||
                                      (type == RDMA_CM_EVENT_ROUTE_RESOLVED && std::string(step) == "resolve_route");
            const bool in_vain = !ends_it && !no_greeting && !next_refuses;
            const auto made = connect_while(ends, nowhere, {.connect_timeout = in_vain ? 50ms : 60000ms}, meanwhile);
            REQUIRE_FALSE(made);
            INFO(made.error().message());
            CHECK(mentions(made.error(), "connect to rdma://10.0.0.9:7471: "));
            if (no_greeting) CHECK(made.error() == errc::protocol_error);
            else if (next_refuses) CHECK(made.error() == code_of(ECONNREFUSED));
            else CHECK((made.error() == errc::deadline_exceeded) == in_vain);
            CHECK(ends.qps() == 0);
            CHECK(ends.ids() == 0);
        }
    }
}

TEST_CASE("Rdma_connect.is_over_in_time_at_every_step") {
    for (const char* const step : {"resolve_addr", "resolve_route", "connect"}) {
        two_ends ends;
        ends.world.hold(step);
        const auto made = ends.run(two_ends::connect(nowhere, {.connect_timeout = 20ms}));
        REQUIRE_FALSE(made);
        INFO(step);
        CHECK(made.error() == errc::deadline_exceeded);
        CHECK(mentions(made.error(), "connect to rdma://10.0.0.9:7471: not done within 20 ms"));
        CHECK(mentions(made.error(), std::string_view(step) == "connect"
                                         ? "waited for its answer to the connection request from rdma://10.0.0.9:"
                                         : "waited for the resolution of its address"));
        CHECK(mentions(made.error(), "RDMA device fake0, port 1") == (std::string_view(step) == "connect"));
        for (const int milliseconds : ends.world.resolve_times()) CHECK(milliseconds <= 20);
        CHECK(ends.qps() == 0);
        CHECK(ends.ids() == 0);
    }
}

TEST_CASE("Rdma_connect.an_answer_that_comes_too_late_finds_the_queue_pair_gone") {
    for (const auto type : {RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED}) {
        two_ends ends;
        ends.world.hold("connect");
        ends.world.hold_calls("destroy_qp", ends.card);
        const auto meanwhile = [type](two_ends& e) -> task<void> {
            const auto what = type;
            const bool asked = co_await until([&] { return e.world.connects().size() == 1; });
            REQUIRE(asked);
            e.world.cm_event(e.world.ids().front(), RDMA_CM_EVENT_UNREACHABLE);
            const bool destroying = co_await until([&] { return e.world.waiting_calls() == 1; });
            REQUIRE(destroying);
            e.world.cm_event(e.world.ids().front(), what);
            co_await yields(3000);
            e.world.release_calls();
        };
        const auto made = connect_while(ends, nowhere, {}, meanwhile);
        REQUIRE_FALSE(made);
        CHECK(made.error() == code_of(EHOSTUNREACH));
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

TEST_CASE("Rdma_connect.a_lane_that_is_lost_while_others_are_set_up_ends_it") {
    two_ends ends;
    check_ok(ends.listen({.connection = {.lanes = 2}}));
    const auto meanwhile = [](two_ends& e) -> task<void> {
        const bool second = co_await until([&] { return e.world.calls("resolve_route") == 2; });
        CHECK(second);
        for (rdma_cm_id* each : e.world.ids())
            if (each == e.world.connects().front().id) e.world.cm_event(each, RDMA_CM_EVENT_DISCONNECTED);
    };
    const auto made = connect_while(ends, ends.there(), {.lanes = 2}, meanwhile);
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(ECONNRESET));
}

TEST_CASE("Rdma_connect.every_call_that_fails_is_named_and_leaves_nothing_behind") {
    const char* const calls[] = {"create_event_channel",
                                 "create_id",
                                 "set_option",
                                 "resolve_addr",
                                 "resolve_route",
                                 "connect",
                                 "accept",
                                 "create_qp",
                                 "init_qp_attr",
                                 "modify_qp",
                                 "get_devices",
                                 "query_device",
                                 "query_port",
                                 "alloc_pd",
                                 "reg_mr",
                                 "create_comp_channel",
                                 "create_cq",
                                 "create_srq",
                                 "post_srq_recv",
                                 "req_notify_cq",
                                 "get_cm_event",
                                 "query_qp"};
    for (const std::uint32_t lanes : {1U, 2U}) {
        for (const char* const call : calls) {
            for (std::uint64_t nth = 1; nth < 12; ++nth) {
                two_ends ends;
                // The channel is there already when it has a listener; the first failure is for one without.
                const bool alone = std::string(call) == "create_event_channel";
                if (!alone) check_ok(ends.listen({.connection = {.connect_timeout = 1s, .lanes = 2}}));
                ends.world.fail(call, nth, ENOMEM);
                const auto made = ends.run(
                    two_ends::connect(alone ? nowhere : ends.there(), {.connect_timeout = 1s, .lanes = lanes}));
                const bool happened = !ends.world.failed().empty();
                INFO(call << ", call " << nth << ", lanes " << lanes << (made ? "" : ": " + made.error().message()));
                if (!made) {
                    CHECK(mentions(made.error(), "connect to rdma://10.0.0."));
                    CHECK(ends.world.connects().size() <= lanes);
                }
                if (!happened) {
                    if (!alone) CHECK(made.has_value());
                    break;
                }
            }
        }
    }
}

TEST_CASE("Rdma_connect.a_queue_pair_that_is_not_made_ready_says_why") {
    two_ends ends;
    check_ok(ends.listen());
    ends.world.fail("make_ready", 1, ENOMEM);
    const auto made = ends.run(ends.connect());
    REQUIRE_FALSE(made);
    INFO(made.error().message());
    CHECK(made.error() == code_of(ENOMEM));
    CHECK(mentions(made.error(), "connection request: it failed (status -12: "));
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
