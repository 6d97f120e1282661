#include "rdma/gid.hpp"
#include "rdma/limits.hpp"
#include "tests/conformance/process.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tools/rdma_info.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <linux/capability.h>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace sluice;
using json = nlohmann::ordered_json;
using Catch::Matchers::ContainsSubstring;

namespace {

/// As most programs are: without CAP_IPC_LOCK, and with the limit that many systems set.
void lock_64_kib_at_most() {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct sets[2]{};
    if (::syscall(SYS_capget, &header, sets) != 0) throw std::runtime_error("capget");
    sets[0].effective &= ~(1U << CAP_IPC_LOCK);
    if (::syscall(SYS_capset, &header, sets) != 0) throw std::runtime_error("capset");
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) throw std::runtime_error("getrlimit");
    limit.rlim_cur = 64 << 10;
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) throw std::runtime_error("setrlimit");
}

} // namespace

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

TEST_CASE("Of iWARP no MTU is shown, and its addresses instead of GIDs") {
    testing::fake_verbs fake;
    testing::fake_device_options options = testing::soft_iwarp();
    options.limits.max_mr_size = 65536;
    auto& gid = options.ports[0].gids[0];
    gid.gid = {};
    gid.gid.raw[0] = 2; // a MAC address, and of the type that IBV_GID_TYPE_IB is
    gid.gid.raw[1] = 9;
    gid.gid_type = IBV_GID_TYPE_IB;
    options.ports[0].attributes.max_mtu = IBV_MTU_256;
    fake.add_device(options);
    const auto all = tools::rdma_devices({});
    REQUIRE(all);
    const json& port = (*all)[0]["ports"][0];
    CHECK(port["mtu_bytes"].is_null());
    CHECK(port["mtu_bytes_max"].is_null());
    REQUIRE_FALSE(port["addresses"].empty());
    CHECK(port["addresses"][0] == "127.0.0.1"); // of lo, the fake's netdev
    CHECK(port["gids"][0] == json{{"index", 0},
                                  {"gid", "0209:0000:0000:0000:0000:0000:0000:0000"},
                                  {"address", nullptr},
                                  {"type", "iWARP"},
                                  {"netdev", "lo"},
                                  {"best", false}});
    const auto lines = tools::lines_of((*all)[0]);
    const std::multimap<std::string, std::string> by_name(lines.begin(), lines.end());
    CHECK(by_name.find("port 1")->second == "active, Ethernet, MTU that of TCP, messages of 8388608 bytes, lo; chosen");
    CHECK(by_name.count("port 1 gid 0") == 0);
    REQUIRE(by_name.count("port 1 address") == port["addresses"].size());
    CHECK(by_name.find("port 1 address")->second == "127.0.0.1");
    CHECK(by_name.find("memory regions")->second == "4096 of 65536 bytes");
}

TEST_CASE("That memory regions have no limit is said in words") {
    testing::fake_verbs fake;
    fake.add_device({}); // as rxe: all 64 bits
    const auto all = tools::rdma_devices({});
    REQUIRE(all);
    CHECK((*all)[0]["limits"]["memory_region_bytes"] == "unlimited");
    const auto lines = tools::lines_of((*all)[0]);
    const std::map<std::string, std::string> by_name(lines.begin(), lines.end());
    CHECK(by_name.at("memory regions") == "4096 of any size");
}

TEST_CASE("A memlock limit with which connections fail is warned of, with need and remedy") {
    const conformance::child_process child([](const conformance::child_process::channel& test) {
        try {
            lock_64_kib_at_most();
            test.say(tools::why_connections_fail());
            test.say("too much: " + rdma::memlock_shortage((64 << 10) + 1));
            test.say("just so: " + rdma::memlock_shortage(64 << 10));
        } catch (const std::exception& e) {
            test.say(e.what());
        }
    });
    const std::string warning = child.pipes().hear();
    CHECK_THAT(warning, ContainsSubstring("but connections fail") && ContainsSubstring("67108864 bytes are needed") &&
                            ContainsSubstring("the memlock limit is 65536 bytes, of which 0 are in use") &&
                            ContainsSubstring("ulimit -l") && ContainsSubstring("LimitMEMLOCK=") &&
                            ContainsSubstring("--ulimit memlock=") && ContainsSubstring("runtime_options.pool_bytes"));
    CHECK_THAT(child.pipes().hear(), ContainsSubstring("too much: 65537 bytes are needed; the memlock limit is 65536"));
    CHECK(child.pipes().hear() == "just so: ");
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
