#include "rdma/chosen_ports.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/runtime.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <cerrno>
#include <cstdlib>
#include <netinet/in.h>
#include <set>
#include <system_error>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;
using rdma::greeting;

namespace {

ibv_gid_entry entry(const char* address, std::uint32_t index) {
    ibv_gid_entry made{};
    const auto parsed = rdma::parse_gid(address).value();
    std::ranges::copy(parsed.bytes, made.gid.raw);
    made.gid_index = index;
    made.gid_type = IBV_GID_TYPE_ROCE_V2;
    made.ndev_ifindex = 1; // "lo"
    return made;
}

fake_device_options named(const char* name, std::initializer_list<const char*> addresses) {
    fake_device_options made;
    made.name = name;
    made.ports[0].gids.clear();
    for (const char* each : addresses)
        made.ports[0].gids.push_back(entry(each, static_cast<std::uint32_t>(made.ports[0].gids.size())));
    return made;
}

/// rxe0, where the kernel's routes lead, and rxe1 with two addresses; a listener that takes what comes by either.
struct two_devices : two_ends {
    ibv_context* other = world.add_device(named("rxe1", {"10.0.1.1", "10.0.2.1", "fd00::1"}));

    two_devices() : two_ends(named("rxe0", {"fe80::1", "10.0.0.1"})) {
        world.route_from("10.0.1.1", other);
        world.route_from("10.0.2.1", other);
    }
    static task<connected> connect_by(address to, std::string selection, connection_options options = {}) {
        to.scheme = scheme::rdma;
        return rdma::rdma_connect(std::move(to), options,
                                  {.choice = "client", .owner = 11, .rdma_devices = std::move(selection)});
    }
    result<void> listen_by(std::string_view on, std::string selection) {
        auto made = run(rdma::rdma_listen(*address::parse(on), {},
                                          {.choice = "server", .owner = 22, .rdma_devices = std::move(selection)}));
        if (!made) return std::move(made).error();
        listener = std::move(*made);
        return {};
    }
    /// "rxe1 from 10.0.1.1": the device of all connecting ends, and where the connection leaves from; or the error.
    std::string way_of(std::string selection, std::uint32_t lanes = 1) {
        const auto body = [](two_devices& e, std::string by, std::uint32_t n) -> task<std::string> {
            auto [client, server] =
                co_await when_all(connect_by(e.there(), std::move(by), {.lanes = n}), e.listener->accept());
            if (!client) co_return client.error().message();
            std::set<std::string> devices;
            for (rdma_cm_id* id : e.world.ids())
                if (id->qp != nullptr && id->route.addr.dst_addr.sa_family != 0 && !came_in(e, id))
                    devices.insert(id->verbs->device->name);
            std::string all;
            for (const std::string& each : devices) all += each + " ";
            const auto from = address::parse((*client)->local_address());
            co_return all + "from " + from->host;
        };
        return run(body(*this, std::move(selection), lanes));
    }
    static bool came_in(const two_devices& e, const rdma_cm_id* id) {
        // Ports of IPv4 and IPv6 are in the same place.
        return ntohs(reinterpret_cast<const sockaddr_in&>(id->route.addr.src_storage).sin_port) == e.there().port;
    }
};

} // namespace

TEST_CASE("Chosen_ports.a_connection_leaves_by_them_only_and_by_the_preferred_one") {
    const auto [selection, way] = GENERATE(table<const char*, const char*>({
        {"", "rxe0 from 10.0.0.1"},
        {"rxe0", "rxe0 from 10.0.0.1"},
        {"*", "rxe0 from 10.0.0.1"}, // among equals the kernel's route
        {"rxe0,rxe1", "rxe0 from 10.0.0.1"},
        {"rxe1", "rxe1 from 10.0.1.1"},
        {"rxe1,rxe0", "rxe1 from 10.0.1.1"},
        {"rxe1:1:1", "rxe1 from 10.0.2.1"},
        {"10.0.2.1", "rxe1 from 10.0.1.1"}, // says which port, not which of its addresses
        {"!rxe0", "rxe1 from 10.0.1.1"},
        {"!rxe1", "rxe0 from 10.0.0.1"},
    }));
    CAPTURE(selection);
    two_devices ends;
    check_ok(ends.listen());
    CHECK(ends.way_of(selection) == way);
    CHECK(ends.way_of(selection, 3) == way);
}

TEST_CASE("Chosen_ports.a_named_gid_is_kept_to_on_the_kernels_route_too") {
    two_devices ends;
    check_ok(ends.listen({}, "rdma://10.0.0.9:0"));
    ends.world.route_from("10.0.0.1", ends.card);
    CHECK(ends.way_of("rxe0") == "rxe0 from 10.0.0.9"); // as the fake's kernel has it
    CHECK(ends.way_of("rxe0:1:1") == "rxe0 from 10.0.0.1");
}

TEST_CASE("Chosen_ports.what_does_not_reach_the_peer_is_passed_over") {
    two_devices ends;
    check_ok(ends.listen());
    ends.world.fail("resolve_addr", 2, ENETUNREACH); // the first is the kernel's own route
    CHECK(ends.way_of("rxe1") == "rxe1 from 10.0.2.1");
    ends.world.fail("resolve_addr", 2, ENETUNREACH);
    ends.world.fail("resolve_addr", 3, EADDRNOTAVAIL);
    CHECK(ends.way_of("rxe1,rxe0") == "rxe0 from 10.0.0.1");
    ends.world.fail("resolve_addr", 1, ENETUNREACH); // the kernel has no route
    CHECK(ends.way_of("rxe1") == "rxe1 from 10.0.1.1");
}

TEST_CASE("Chosen_ports.none_that_reaches_the_peer_is_an_error_that_says_what_was_tried") {
    two_devices ends;
    ends.world.fail("resolve_addr", 2, ENETUNREACH);
    ends.world.fail("resolve_addr", 3, EADDRNOTAVAIL);
    const auto to = *address::parse("rdma://10.0.0.9:7471");
    const auto none = ends.run(two_devices::connect_by(to, "rxe1"));
    REQUIRE_FALSE(none);
    CHECK(none.error() == code_of(EHOSTUNREACH));
    for (const char* words :
         {"connect to rdma://10.0.0.9:7471: ", "rdma_devices \"rxe1\"", "the route leads to rxe0:1 from 10.0.0.9",
          "rxe1:1 from 10.0.1.1: address resolution", "rxe1:1 from 10.0.2.1: address resolution"}) {
        CAPTURE(words, none.error().message());
        CHECK(mentions(none.error(), words));
    }
    CHECK(ends.ids() == 0);
    SECTION("no route and no address of the peer's kind") {
        ends.world.route_to(nullptr);
        const auto six = ends.run(two_devices::connect_by(*address::parse("rdma://[2001:db8::9]:7471"), "rxe0"));
        REQUIRE_FALSE(six);
        CHECK(mentions(six.error(), "the route leads to no RDMA device; no chosen port has an address"));
    }
    SECTION("a part that matches nothing") {
        const auto unknown = ends.run(two_devices::connect_by(to, "rxe0,mlx5_9"));
        REQUIRE_FALSE(unknown);
        CHECK(unknown.error() == code_of(ENODEV));
        CHECK(mentions(unknown.error(), "\"mlx5_9\": no such device; there are rxe0:1 (active), rxe1:1 (active)"));
    }
}

TEST_CASE("Chosen_ports.an_address_that_leads_by_another_port_than_its_own_is_of_no_use") {
    two_devices turned;
    turned.world.route_from("10.0.3.1", turned.card);
    turned.world.add_device(named("rxe2", {"10.0.3.1"}));
    const auto strayed = turned.run(two_devices::connect_by(*address::parse("rdma://10.0.0.9:7471"), "rxe2"));
    REQUIRE_FALSE(strayed);
    CHECK(mentions(strayed.error(), "rxe2:1 from 10.0.3.1: it leads to rxe0:1 from 10.0.3.1"));
    CHECK(turned.ids() == 0);
}

TEST_CASE("Chosen_ports.whatever_fails_or_takes_its_time_leaves_nothing_behind") {
    const auto to = *address::parse("rdma://10.0.0.9:7471");
    SECTION("a call") {
        const std::string call = GENERATE("create_id", "resolve_addr", "resolve_route", "set_option", "connect");
        for (std::uint64_t nth = 1; nth <= 3; ++nth) {
            two_devices ends;
            ends.world.fail(call, nth, ENOMEM);
            CHECK_FALSE(ends.run(two_devices::connect_by(to, "rxe1"))); // nobody listens
            CHECK(ends.ids() == 0);
        }
    }
    SECTION("listing the devices") {
        two_devices ends;
        ends.world.fail("get_devices", 1, EACCES);
        CHECK(ends.run(two_devices::connect_by(to, "rxe1")).error() == condition::access_denied);
        ends.world.fail("query_device", 1, EIO); // of rxe0, which is left out
        CHECK(ends.run(two_devices::connect_by(to, "rxe0")).error() == code_of(ENODEV));
    }
    SECTION("time") {
        two_devices ends;
        ends.world.hold("resolve_addr");
        const auto late = ends.run(two_devices::connect_by(to, "rxe1", {.connect_timeout = 50ms}));
        REQUIRE_FALSE(late);
        CHECK(late.error() == condition::timed_out);
        CHECK(ends.ids() == 0);
    }
}

TEST_CASE("Chosen_ports.an_address_of_another_device_is_none_to_listen_on") {
    two_devices ends;
    ends.world.route_from("10.0.0.1", ends.card);
    const auto refused = ends.listen_by("rdma://10.0.0.1:0", "rxe1");
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == code_of(EADDRNOTAVAIL));
    CHECK(mentions(refused.error(), "listen on rdma://10.0.0.1:0: the address is of rxe0:1 from 10.0.0.1"));
    CHECK(mentions(refused.error(), "rdma_devices \"rxe1\""));
    CHECK(ends.ids() == 0);
    CHECK_FALSE(ends.listen_by("rdma://10.0.1.1:0", "rxe1:1:1")); // another address than the GID's
    check_ok(ends.listen_by("rdma://10.0.2.1:0", "rxe1:1:1"));
    check_ok(ends.listen_by("rdma://10.0.0.1:0", "!rxe1"));
    CHECK(ends.listen_by("rdma://10.0.0.1:0", "rxe0:x").error() == errc::invalid_argument);
}

TEST_CASE("Chosen_ports.a_request_over_another_device_is_refused") {
    two_devices ends;
    check_ok(ends.listen_by("rdma://0.0.0.0:0", "rxe1"));
    const auto to = *address::parse("rdma://10.0.0.1:" + std::to_string(ends.there().port));
    const auto refused = ends.run(two_devices::connect_by(to, "rxe0"));
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == code_of(EHOSTUNREACH));
    CHECK(mentions(refused.error(), "takes no connections by the device that leads there"));
    REQUIRE(ends.world.rejects().size() == 1);
    CHECK(greeting::decode(ends.world.rejects()[0].private_data)->why == greeting::refusal::device);
    ends.world.route_to(ends.other);
    const auto body = [](two_devices& e, address at) -> task<void> {
        auto [client, server] = co_await when_all(two_devices::connect_by(std::move(at), "rxe1"), e.listener->accept());
        check_ok(client);
        check_ok(server);
    };
    ends.run(body(ends, to));
    CHECK(ends.listener->rejected() == 1);
}

TEST_CASE("Chosen_ports.addresses_are_gids_on_RoCE_and_those_of_the_netdev_elsewhere") {
    const auto of = [](const char* text) { return rdma::parse_gid(text).value(); };
    rdma::listed_port port;
    port.attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    port.gids = {{of("fe80::1"), 0, IBV_GID_TYPE_ROCE_V1, "eth0"},
                 {of("fe80::1"), 1, IBV_GID_TYPE_ROCE_V2, "eth0"},
                 {of("10.0.0.1"), 2, IBV_GID_TYPE_ROCE_V2, "eth0"},
                 {of("10.0.0.2"), 3, IBV_GID_TYPE_ROCE_V2, ""}};
    port.netdevs = {"eth0"};
    port.addresses = {of("fe80::1"), of("10.0.0.7")};
    rdma::listed_device roce;
    using all = std::vector<rdma::source_address>;
    CHECK(rdma::sources_of(roce, port, {}) == all{{of("10.0.0.1"), "eth0"}, {of("fe80::1"), "eth0"}});
    CHECK(rdma::sources_of(roce, port, 0) == all{{of("fe80::1"), "eth0"}});
    rdma::listed_device iwarp;
    iwarp.quirks.iwarp = true;
    CHECK(rdma::sources_of(iwarp, port, {}) == all{{of("fe80::1"), "eth0"}, {of("10.0.0.7"), "eth0"}});
    CHECK(rdma::sources_of(iwarp, port, 0).empty());
    port.netdevs.emplace_back("eth0.5"); // whose link-local address it is can't be told
    port.attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
    CHECK(rdma::sources_of(roce, port, {}) == all{{of("10.0.0.7"), ""}});
}

TEST_CASE("Chosen_ports.a_malformed_text_is_a_mistake_where_there_is_no_device_too") {
    CHECK(mentions(rdma::rdma_available("rxe0:0").error(), "rdma device \"rxe0:0\": ports are numbered"));
}

TEST_CASE("Chosen_ports.a_malformed_text_is_refused_when_the_runtime_is_made") {
    const auto refused = runtime::create({.pool_bytes = 4 << 20, .rdma_devices = "rxe0,rxe1:0"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == condition::invalid);
    CHECK(mentions(refused.error(), "runtime_options.rdma_devices: rdma device \"rxe1:0\": ports are numbered"));
    REQUIRE(setenv("SLUICE_RDMA_USE", "!*", 1) == 0);
    const auto from_outside = runtime::create({.pool_bytes = 4 << 20});
    const auto given = runtime::create({.pool_bytes = 4 << 20, .rdma_devices = "rxe0"});
    unsetenv("SLUICE_RDMA_USE");
    REQUIRE_FALSE(from_outside);
    CHECK(mentions(from_outside.error(), "SLUICE_RDMA_USE: rdma device \"!*\""));
    CHECK(given.has_value()); // goes before the environment
}

TEST_CASE("Chosen_ports.auto_looks_at_the_chosen_devices_only_and_says_why_it_does_without") {
    fake_verbs world;
    world.add_device(named("rxe0", {"10.0.0.1"}));
    world.automatic(true);
    const auto choice_with = [](const char* devices) {
        auto rt = runtime::create({.pool_bytes = 4 << 20, .rdma_devices = devices, .pin = false}).value();
        const auto body = [](runtime& on) -> task<std::string> {
            auto listening = co_await on.listen("auto://127.0.0.1:0");
            if (!listening) co_return listening.error().message();
            auto [client, server] = co_await when_all(on.connect(listening->address()), listening->accept());
            if (!client) co_return client.error().message();
            co_return client->choice();
        };
        return rt.sync_wait(body(rt));
    };
    CHECK(choice_with("rxe0") == "rdma: both ends have it");
    CHECK(choice_with("rxe7").starts_with("tcp: rdma device \"rxe7\": no such device; there are rxe0:1"));
    const auto required =
        runtime::create({.pool_bytes = 4 << 20, .rdma = mode::require, .rdma_devices = "rxe7", .pin = false});
    REQUIRE_FALSE(required);
    CHECK(mentions(required.error(), "\"rxe7\": no such device"));
    rdma::device::close_all();
}
