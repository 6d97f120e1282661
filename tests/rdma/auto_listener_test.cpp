#include "net/auto_listener.hpp"

#include "tests/rdma/fake_names.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/timeout.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cerrno>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

/// A listener over both, of which the world has the RDMA part.
struct both_ways : two_ends {
    result<void> listen_both_ways(std::string_view on = "auto://127.0.0.1:0", bool require_rdma = false) {
        auto made = run(net::auto_listen(*address::parse(on), {}, {.choice = {}, .owner = 22}, require_rdma));
        if (!made) return std::move(made).error();
        listener = std::move(*made);
        return {};
    }
    task<connected> connect_over_tcp() const {
        address to = there();
        to.scheme = scheme::tcp;
        return detail::provider_of(scheme::tcp)->connect(std::move(to), {}, {.choice = "client", .owner = 11});
    }
};

/// Somebody comes over TCP, and is taken in.
task<void> meet_over_tcp(both_ways& ends) {
    auto [client, server] = co_await when_all(ends.connect_over_tcp(), ends.listener->accept());
    check_ok(client);
    check_ok(server);
    if (server) CHECK((*server)->choice() == "tcp: the peer asked for it");
}

} // namespace

TEST_CASE("Auto_listener.takes_in_who_comes_over_either") {
    both_ways ends;
    check_ok(ends.listen_both_ways());
    REQUIRE(ends.world.listening().size() == 1);
    CHECK(ends.there().scheme == scheme::automatic);
    const auto body = [](both_ways& e) -> task<void> {
        for (int round = 0; round < 3; ++round) {
            co_await meet_over_tcp(e);
            auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
            check_ok(client);
            check_ok(server);
            if (server) CHECK((*server)->choice() == "rdma: the peer asked for it");
        }
    };
    ends.run(body(ends));
}

TEST_CASE("Auto_listener.goes_on_over_tcp_when_its_rdma_device_goes") {
    const bool waits = GENERATE(false, true); // in accept(), or not yet
    both_ways ends;
    check_ok(ends.listen_both_ways());
    const auto body = [](both_ways& e, bool accepting) -> task<void> {
        const auto remove = [](both_ways& of) -> task<void> {
            co_await yields(50);
            of.world.cm_event(of.world.listening().front(), RDMA_CM_EVENT_DEVICE_REMOVAL);
            co_await yields(3000);
            auto client = co_await of.connect_over_tcp();
            check_ok(client);
        };
        if (!accepting) co_await remove(e);
        if (accepting) {
            auto [done, server] = co_await when_all(remove(e), e.listener->accept());
            static_cast<void>(done);
            check_ok(server);
        } else {
            auto server = co_await e.listener->accept();
            check_ok(server);
        }
        for (int round = 0; round < 3; ++round) co_await meet_over_tcp(e);
        CHECK(e.world.listening().empty());
        CHECK(e.listener->rejected() == 0);
    };
    ends.run(body(ends, waits));
}

TEST_CASE("Auto_listener.listens_over_rdma_where_it_does_over_tcp") {
    const fake_name name("two.test", {"127.0.0.1", "127.0.0.2"});
    both_ways ends;
    check_ok(ends.listen_both_ways("auto://two.test:0"));
    CHECK(ends.there().host == "127.0.0.1");
    CHECK(ends.world.listening().size() == 1);
    ends.world.fail("bind_addr", 1, EADDRNOTAVAIL); // no other address, which nobody would hear of
    check_ok(ends.listen_both_ways("auto://two.test:0"));
    CHECK(ends.world.listening().empty());
    ends.run(meet_over_tcp(ends));
}

TEST_CASE("Auto_listener.hands_nothing_out_once_it_was_closed") {
    both_ways ends;
    check_ok(ends.listen_both_ways());
    const auto body = [](both_ways& e) -> task<void> {
        auto over_rdma = co_await e.connect();
        auto over_tcp = co_await e.connect_over_tcp();
        check_ok(over_rdma);
        check_ok(over_tcp);
        co_await yields(3000);
        auto first = co_await e.listener->accept(); // the other one may have come along
        check_ok(first);
        e.listener->close();
        const auto second = co_await e.listener->accept();
        check_error(second, condition::closed);
        CHECK(mentions(second.error(), "accept on auto://127.0.0.1:"));
    };
    ends.run(body(ends));
}

TEST_CASE("Auto_listener.tcp_alone_does_where_rdma_can_not_listen") {
    for (const char* const call : {"create_event_channel", "create_id", "bind_addr", "listen"}) {
        both_ways ends;
        ends.world.fail(call, 1, ENODEV);
        INFO(call);
        check_ok(ends.listen_both_ways());
        CHECK(ends.world.failed() == call);
        CHECK(ends.ids() == 0);
        ends.run(meet_over_tcp(ends));
    }
    both_ways ends;
    ends.world.fail("listen", 1, EADDRINUSE);
    check_error(ends.listen_both_ways("auto://127.0.0.1:0", true), condition::busy); // rdma is required
}
