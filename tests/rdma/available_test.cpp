#include "rdma/available.hpp"
#include "rdma/device_list.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tests/support/temporary_directory.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

using namespace sluice;
using namespace sluice::rdma;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What of sysfs and /dev is looked at.
struct machine {
    testing::temporary_directory root;

    void write(const std::string& file, const std::string& text) {
        const std::filesystem::path at = root / file;
        std::filesystem::create_directories(at.parent_path());
        std::ofstream(at) << text << '\n';
    }
    void add_device(const std::string& name, const std::string& state, const std::string& node) {
        write("sys/class/infiniband/" + name + "/ports/1/state", state);
        if (node.empty()) return;
        write("sys/class/infiniband_verbs/" + node + "/ibdev", name);
        write("dev/infiniband/" + node, "");
    }
    std::string reason() {
        const auto available = rdma_available_in(root.path());
        return available ? "" : available.error().message();
    }
};

} // namespace

TEST_CASE("RDMA is available where a port is active and the nodes may be opened, else the reason is said") {
    machine m;
    CHECK_THAT(m.reason(), ContainsSubstring("no device") && ContainsSubstring("rdma link add"));
    CHECK(rdma_available_in(m.root.path()).error() == condition::unsupported);

    m.add_device("rxe0", "1: DOWN", "uverbs0");
    CHECK_THAT(m.reason(), ContainsSubstring("rxe0 port 1 is 1: DOWN"));
    CHECK(rdma_available_in(m.root.path()).error() == condition::unsupported);

    m.add_device("rxe1", "4: ACTIVE", "uverbs1");
    CHECK_THAT(m.reason(), ContainsSubstring("/dev/infiniband/rdma_cm is missing; modprobe rdma_ucm"));
    CHECK(rdma_available_in(m.root.path()).error() == std::errc::no_such_file_or_directory);

    m.write("dev/infiniband/rdma_cm", "");
    CHECK(m.reason().empty());

    std::filesystem::remove(m.root / "dev/infiniband/uverbs1");
    CHECK_THAT(m.reason(), ContainsSubstring("/dev/infiniband/uverbs1 is missing"));
    std::filesystem::remove_all(m.root / "sys/class/infiniband_verbs/uverbs1");
    CHECK_THAT(m.reason(), ContainsSubstring("rxe1 has no verbs for programs"));
    m.add_device("rxe2", "4: ACTIVE", "uverbs2"); // one is enough
    CHECK(m.reason().empty());
}

TEST_CASE("A node that is there and may not be opened is told apart from one that is missing") {
    machine m;
    m.add_device("rxe0", "4: ACTIVE", "uverbs0");
    std::filesystem::create_symlink("rdma_cm", m.root / "dev/infiniband/rdma_cm"); // to itself: not even root opens it
    CHECK_THAT(m.reason(), ContainsSubstring("/dev/infiniband/rdma_cm may not be opened"));
    CHECK(rdma_available_in(m.root.path()).error() == std::errc::too_many_symbolic_link_levels);
}

TEST_CASE("Devices are listed with their ports") {
    testing::fake_verbs fake;
    testing::fake_device_options options;
    options.ports.resize(2);
    options.ports[1].attributes.state = IBV_PORT_DOWN;
    options.ports[1].gids.clear();
    fake.add_device(options);
    fake.add_device();
    const auto all = list_devices();
    REQUIRE(all);
    REQUIRE(all->size() == 2);
    const listed_device& first = all->front();
    CHECK(first.name == "fake0");
    CHECK(std::string(first.quirks.kind) == "Soft-RoCE (rxe)");
    REQUIRE(first.ports.size() == 2);
    CHECK(first.ports[0].active);
    CHECK(first.ports[0].gids.size() == 1);
    CHECK(first.ports[0].netdevs == std::vector<std::string>{"lo"});
    CHECK(std::ranges::count(first.ports[0].addresses, parse_gid("127.0.0.1").value()) == 1);
    CHECK(bytes_of(first.ports[0].attributes.active_mtu) == 1024);
    CHECK_FALSE(first.ports[1].active);
    CHECK(std::string(to_string(first.ports[1].attributes.state)) == "down");
    CHECK(all->back().ports.size() == 1);
}

TEST_CASE("A device that can't be asked is left out, and no list at all is an error") {
    testing::fake_verbs fake;
    fake.add_device();
    fake.add_device();
    fake.fail("query_port", 1, EIO);
    const auto rest = list_devices();
    REQUIRE(rest);
    REQUIRE(rest->size() == 1);
    CHECK(rest->front().name == "fake1");
    fake.fail("get_devices", 1, ENODEV);
    const auto none = list_devices();
    REQUIRE_FALSE(none);
    CHECK_THAT(none.error().message(), ContainsSubstring("rdma_get_devices"));
}
