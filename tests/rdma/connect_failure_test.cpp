// How connecting fails: at every step, with a named error, in time, and with nothing left behind.
#include "tests/rdma/fake_names.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/runtime.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;
using rdma::greeting;

TEST_CASE("Rdma_connect.says_so_when_nobody_listens") {
    two_ends ends;
    const auto made = ends.run(two_ends::connect(nowhere, {}));
    REQUIRE_FALSE(made);
    CHECK(made.error() == code_of(ECONNREFUSED));
    CHECK(mentions(made.error(), "connect to rdma://10.0.0.9:7471: "));
    CHECK(mentions(made.error(), "nobody listens there"));
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
