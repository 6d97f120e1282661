#include "rdma/device_selector.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace sluice;
using namespace sluice::rdma;
using Catch::Matchers::ContainsSubstring;

namespace {

gid of(const char* text) { return parse_gid(text).value(); }

/// Two devices with two ports each, one of them down; two links with the same link-local address; one over InfiniBand,
/// whose netdev has the IP address.
const std::vector<described_port>& machine() {
    static const std::vector<described_port> ports{
        {.device = "mlx5_0",
         .number = 1,
         .active = true,
         .gids = {{of("fe80::1"), 0, IBV_GID_TYPE_ROCE_V2, "eth0"}, {of("10.0.0.1"), 3, IBV_GID_TYPE_ROCE_V2, "eth0"}},
         .netdevs = {"eth0"}},
        {.device = "mlx5_0",
         .number = 2,
         .active = true,
         .gids = {{of("fe80::1"), 0, IBV_GID_TYPE_ROCE_V2, "eth1"},
                  {of("2001:db8::2"), 1, IBV_GID_TYPE_ROCE_V2, "eth1"}},
         .netdevs = {"eth1"}},
        {.device = "mlx5_1",
         .number = 1,
         .active = false,
         .gids = {{of("10.0.0.3"), 0, IBV_GID_TYPE_ROCE_V2, "eth2"}},
         .netdevs = {"eth2"}},
        {.device = "mlx5_1",
         .number = 2,
         .active = true,
         .gids = {{of("fe80::4"), 0, IBV_GID_TYPE_IB, ""}},
         .netdevs = {"ib0"},
         .addresses = {of("10.1.0.4")}},
    };
    return ports;
}

std::string names(const std::vector<device_selector::choice>& chosen) {
    std::string all;
    for (const auto& each : chosen) {
        all += (all.empty() ? "" : " ") + each.port->device + ":" + std::to_string(each.port->number);
        if (each.gid_index) all += ":" + std::to_string(*each.gid_index);
    }
    return all;
}

} // namespace

TEST_CASE("A text chooses ports") {
    const auto [text, expected] = GENERATE(table<const char*, const char*>({
        {"*", "mlx5_0:1 mlx5_0:2 mlx5_1:2"},
        {"mlx5_0", "mlx5_0:1 mlx5_0:2"},
        {"mlx5_1", "mlx5_1:2"}, // the other one is down
        {"mlx5_0:2", "mlx5_0:2"},
        {"mlx5_0:1:3", "mlx5_0:1:3"},
        {"10.0.0.1", "mlx5_0:1"},
        {"::ffff:10.0.0.1", "mlx5_0:1"},
        {"2001:db8:0:0::2", "mlx5_0:2"},
        {"[2001:db8::2]", "mlx5_0:2"},
        {"10.1.0.4", "mlx5_1:2"},
        {"10.1.0.4%ib0", "mlx5_1:2"},
        {"fe80::4", "mlx5_1:2"},
        {"mlx5_0:1:3,mlx5_0:1:3,mlx5_0:1", "mlx5_0:1:3"},
        {"fe80::1%eth1", "mlx5_0:2"},
        {"[fe80::1%eth0]", "mlx5_0:1"},
        {"eth1", "mlx5_0:2"},
        {"ib0", "mlx5_1:2"},
        {"eth1,10.0.0.1", "mlx5_0:2 mlx5_0:1"}, // in the order named
        {"mlx5_0:2,*,mlx5_0", "mlx5_0:2 mlx5_0:1 mlx5_1:2"},
        {"!mlx5_0", "mlx5_1:2"},
        {"!mlx5_0:1", "mlx5_0:2 mlx5_1:2"},
        {"!eth0,!ib0", "mlx5_0:2"},
        {"!10.0.0.1,mlx5_0", "mlx5_0:2"},
        {"*,!fe80::1%eth0", "mlx5_0:2 mlx5_1:2"},
        {"!nothing", "mlx5_0:1 mlx5_0:2 mlx5_1:2"},
    }));
    CAPTURE(text);
    const auto parsed = device_selector::parse(text);
    REQUIRE(parsed);
    const auto chosen = parsed->match(machine());
    if (!chosen) FAIL(chosen.error().message());
    CHECK(names(*chosen) == expected);
}

TEST_CASE("What is not there, or not up, is named") {
    const auto [text, code, words] = GENERATE(table<const char*, std::errc, const char*>({
        {"rxe0", std::errc::no_such_device, "\"rxe0\": no such device; there are mlx5_0:1 (active)"},
        {"mlx5_0:3", std::errc::no_such_device, "\"mlx5_0:3\""},
        {"mlx5_0,rxe0", std::errc::no_such_device, "\"rxe0\""}, // no silent half
        {"eth0:1", std::errc::no_such_device, "\"eth0:1\""},    // a netdev has no ports
        {"10.9.9.9", std::errc::no_such_device, "\"10.9.9.9\""},
        {"10.1.0.4%eth0", std::errc::no_such_device, "\"10.1.0.4%eth0\""}, // it is another one's
        {"fe80::1%eth7", std::errc::no_such_device, "\"fe80::1%eth7\""},
        {"mlx5_0:1:1", std::errc::no_such_device, "\"mlx5_0:1:1\": this place"},
        {"mlx5_1:1", std::errc::network_down, "\"mlx5_1:1\": no port of it is active"},
        {"10.0.0.3", std::errc::network_down, "\"10.0.0.3\""},
        {"fe80::1", std::errc::invalid_argument, "\"fe80::1\": 2 ports have this link-local address"},
        {"mlx5_0:1:3,mlx5_0:1:0", std::errc::invalid_argument, "\"mlx5_0:1:0\": the list has this port already"},
        {"mlx5_0,mlx5_0:1:3", std::errc::invalid_argument, "already, by \"mlx5_0\""},
        {"mlx5_0,!mlx5_0", std::errc::no_such_device, "all are denied"},
        {"!mlx5_0,!mlx5_1:2", std::errc::network_down, "\"*\""},
    }));
    CAPTURE(text);
    const auto parsed = device_selector::parse(text);
    REQUIRE(parsed);
    const auto chosen = parsed->match(machine());
    REQUIRE_FALSE(chosen);
    CHECK(chosen.error() == code);
    CHECK_THAT(chosen.error().message(), ContainsSubstring(words));
}

TEST_CASE("Of each port it is said whether it is chosen, and why not") {
    const auto parsed = device_selector::parse("mlx5_1,mlx5_0:1:3,!mlx5_1:2");
    REQUIRE(parsed);
    CHECK(parsed->judge(machine()[0]).why_not.empty());
    CHECK(parsed->judge(machine()[0]).gid_index == 3U);
    CHECK(parsed->judge(machine()[1]).why_not == "not in the list");
    CHECK(parsed->judge(machine()[2]).why_not.empty()); // though it is down
    CHECK(parsed->judge(machine()[3]).why_not == "denied by \"!mlx5_1:2\"");
    CHECK(device_selector::parse("!mlx5_1")->judge(machine()[0]).why_not.empty());
}

TEST_CASE("A machine without devices says so") {
    const auto chosen = device_selector::parse("*")->match({});
    REQUIRE_FALSE(chosen);
    CHECK_THAT(chosen.error().message(), ContainsSubstring("there is none"));
}

TEST_CASE("A malformed text is refused, and the part is quoted") {
    const auto [text, part] = GENERATE(table<std::string, std::string>({
        {"", "\"\": nothing is named"},
        {"mlx5_0,", "\"\": nothing is named"},
        {",mlx5_0", "\"\""},
        {"!", "\"!\""},
        {"!*", "\"!*\": would deny every device"},
        {"!!mlx5_0", "\"!!mlx5_0\""},
        {"mlx5_0:0", "\"mlx5_0:0\": ports are numbered 1..255"},
        {"mlx5_0:256", "\"mlx5_0:256\""},
        {"mlx5_0:", "\"mlx5_0:\""},
        {"mlx5_0:1x", "\"mlx5_0:1x\""},
        {"mlx5_0:-1", "\"mlx5_0:-1\""},
        {"mlx5_0: 1", "\"mlx5_0: 1\""},
        {"mlx5_0:1:", "\"mlx5_0:1:\": the index of a GID"},
        {"mlx5_0:1:70000", "\"mlx5_0:1:70000\""},
        {"mlx5_0:1:2:3", "\"mlx5_0:1:2:3\": allowed is at most"},
        {"!mlx5_0:1:2", "\"!mlx5_0:1:2\": a port is denied"},
        {":1", "\":1\""},
        {" mlx5_0", "\" mlx5_0\""},
        {"*,ml/x", "\"ml/x\""},
        {"fe80::1%", "\"fe80::1%\""},
        {"eth0%eth1", "\"eth0%eth1\": not an IP address"},
        {"[mlx5_0]", "\"[mlx5_0]\": not an IP address"},
        {"[fe80::1", "\"[fe80::1\""},
        {"0.0.0.0", "\"0.0.0.0\": no device has this address"},
        {"::", "\"::\""},
        {std::string(64, 'a'), "1..63 letters"},
        {"mlx5_0\n", "mlx5_0\\x0a"},
    }));
    CAPTURE(text);
    const auto parsed = device_selector::parse(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error() == errc::invalid_argument);
    CHECK_THAT(parsed.error().message(), ContainsSubstring(part));
}
