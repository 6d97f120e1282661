#include "rdma/gid.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tools/rdma_info.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>

using namespace sluice;
using json = nlohmann::ordered_json;

TEST_CASE("Devices are shown with their ports, GIDs and limits") {
    testing::fake_verbs fake;
    testing::fake_device_options options;
    options.name = "rxe7";
    options.ports.resize(2);
    auto& gids = options.ports[0].gids;
    gids.push_back(gids[0]); // a second one, link-local and without a netdev
    gids[1].gid_index = 1;
    gids[1].gid = {};
    gids[1].gid.raw[0] = 0xfe;
    gids[1].gid.raw[1] = 0x80;
    gids[1].gid.raw[15] = 1;
    gids[1].ndev_ifindex = 0;
    options.ports[1].attributes.state = IBV_PORT_DOWN;
    options.ports[1].gids.clear();
    fake.add_device(options);
    const auto all = tools::rdma_devices({});
    REQUIRE(all);
    REQUIRE(all->size() == 1);
    const json& device = (*all)[0];
    CHECK(device["name"] == "rxe7");
    CHECK(device["type"] == "Soft-RoCE (rxe)");
    CHECK(device["limits"]["work_requests_per_queue_pair"] == 16384);
    CHECK(device["limits"]["atomics"] == true);
    const json& port = device["ports"][0];
    CHECK(port["state"] == "active");
    CHECK(port["link_layer"] == "Ethernet");
    CHECK(port["mtu_bytes"] == 1024);
    CHECK(port["netdevs"] == json{"lo"});
    CHECK(port["gids"][0] == json{{"index", 0},
                                  {"gid", "0000:0000:0000:0000:0000:ffff:0a00:0001"},
                                  {"address", "10.0.0.1"},
                                  {"type", "RoCE v2"},
                                  {"netdev", "lo"},
                                  {"best", true}});
    CHECK(port["gids"][1]["best"] == false);
    CHECK(port["gids"][1]["netdev"].is_null());
    CHECK(device["ports"][1]["gids"].empty());

    const auto lines = tools::lines_of(device);
    const std::map<std::string, std::string> by_name(lines.begin(), lines.end());
    CHECK(by_name.at("type") == "Soft-RoCE (rxe)");
    CHECK(by_name.at("port 1") == "active, Ethernet, MTU 1024 of 4096, messages of 8388608 bytes, lo; chosen");
    CHECK(by_name.at("port 1 gid 0") == "10.0.0.1  (RoCE v2, lo, best)");
    CHECK(by_name.at("port 1 gid 1") == "fe80::1  (RoCE v2, no netdev)");
    CHECK(by_name.at("port 2") == "down, Ethernet, MTU 1024 of 4096, messages of 8388608 bytes; not chosen: the port is not active");
}

TEST_CASE("Of each port it is shown whether it is chosen, and why not") {
    testing::fake_verbs fake;
    testing::fake_device_options options;
    options.ports.resize(2);
    fake.add_device(options);
    fake.add_device(options);
    const auto all = tools::rdma_devices("fake0,!fake0:2");
    REQUIRE(all);
    CHECK((*all)[0]["ports"][0]["chosen"] == true);
    CHECK_FALSE((*all)[0]["ports"][0].contains("why_not_chosen"));
    CHECK((*all)[0]["ports"][1]["chosen"] == false);
    CHECK((*all)[0]["ports"][1]["why_not_chosen"] == "denied by \"!fake0:2\"");
    CHECK((*all)[1]["ports"][0]["why_not_chosen"] == "not in the list");
    const auto lines = tools::lines_of((*all)[1]);
    const std::map<std::string, std::string> by_name(lines.begin(), lines.end());
    CHECK(by_name.at("port 2").ends_with("; not chosen: not in the list"));
    CHECK(tools::rdma_devices("fake0:0").error() == errc::invalid_argument);
}

TEST_CASE("Why devices can't be listed is passed on") {
    testing::fake_verbs fake;
    fake.fail("get_devices", 1, ENODEV);
    const auto all = tools::rdma_devices({});
    REQUIRE_FALSE(all);
    CHECK(all.error() == std::errc::no_such_device);
}
