#include "rdma/gid.hpp"
#include "tests/rdma/fake_verbs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

using namespace sluice;
using namespace sluice::rdma;
using Catch::Matchers::ContainsSubstring;

namespace {

gid of(const char* text) {
    const auto parsed = parse_gid(text);
    REQUIRE(parsed);
    return *parsed;
}

} // namespace

TEST_CASE("A GID comes back from its texts") {
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000; ++i) {
        gid g;
        for (auto& each : g.bytes) each = static_cast<std::uint8_t>(random() % 3 == 0 ? 0 : random());
        if (i % 4 == 0) { // IPv4
            g = gid{};
            g.bytes[10] = g.bytes[11] = 0xff;
            for (std::size_t at = 12; at < 16; ++at) g.bytes[at] = static_cast<std::uint8_t>(random());
        }
        CHECK(to_string(g).size() == 39);
        CHECK(of(to_string(g).c_str()) == g);
        CHECK(of(to_address(g).c_str()) == g);
    }
    CHECK(to_string(of("10.0.0.1")) == "0000:0000:0000:0000:0000:ffff:0a00:0001");
    CHECK(to_address(of("0000:0000:0000:0000:0000:ffff:0a00:0001")) == "10.0.0.1");
    CHECK(to_address(of("fe80:0:0::1")) == "fe80::1");
}

TEST_CASE("What is no address is refused and quoted") {
    const std::string text = GENERATE(as<std::string>{}, "", "rxe0", "10.0.0", "10.0.0.256", "fe80",
                                      ":::", "fe80::1%eth0", "0000:0000:0000:0000:0000:ffff:0a00:0001:0",
                                      std::string("10.0.0.1\0x", 10), std::string("::1\0", 4), " ::1");
    const auto parsed = parse_gid(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error() == errc::invalid_argument);
    CHECK_THAT(parsed.error().message(), ContainsSubstring("GID \"" + text.substr(0, text.find('\0'))));
}

TEST_CASE("Addresses of one link are known") {
    const auto [text, expected] = GENERATE(table<const char*, bool>({{"fe80::1", true},
                                                                     {"febf::1", true},
                                                                     {"fec0::1", false},
                                                                     {"2001:db8::1", false},
                                                                     {"169.254.0.1", true},
                                                                     {"169.253.0.1", false},
                                                                     {"10.0.0.1", false},
                                                                     {"::a9fe:1", false}})); // not mapped
    CAPTURE(text);
    CHECK(of(text).is_link_local() == expected);
}

TEST_CASE("GIDs are ranked") {
    struct row {
        const char* better;
        ibv_gid_type better_type;
        const char* better_netdev;
        const char* worse;
        ibv_gid_type worse_type;
        const char* worse_netdev;
    };
    const row r = GENERATE(values<row>({
        {"10.0.0.1", IBV_GID_TYPE_ROCE_V2, "eth0", "10.0.0.1", IBV_GID_TYPE_ROCE_V1, "eth0"},
        {"10.0.0.1", IBV_GID_TYPE_ROCE_V2, "eth0", "169.254.3.4", IBV_GID_TYPE_ROCE_V2, "eth0"},
        {"2001:db8::1", IBV_GID_TYPE_ROCE_V2, "eth0", "fe80::1", IBV_GID_TYPE_ROCE_V2, "eth0"},
        {"fe80::1", IBV_GID_TYPE_ROCE_V2, "eth0", "10.0.0.1", IBV_GID_TYPE_ROCE_V1, "eth0"},
        {"fe80::1", IBV_GID_TYPE_ROCE_V1, "eth0", "10.0.0.1", IBV_GID_TYPE_ROCE_V2, ""},
        {"fe80::1", IBV_GID_TYPE_IB, "", "10.0.0.1", IBV_GID_TYPE_ROCE_V2, ""},
        {"2001:db8::1", IBV_GID_TYPE_IB, "", "fe80::1", IBV_GID_TYPE_IB, ""},
    }));
    for (const bool swapped : {false, true}) {
        gid_entry better{of(r.better), swapped ? 9U : 1U, r.better_type, r.better_netdev};
        gid_entry worse{of(r.worse), 5, r.worse_type, r.worse_netdev};
        const gid_entry hole{};
        const auto ranked = rank_gids({hole, worse, better, hole});
        REQUIRE(ranked.size() == 2); // without the zeros
        CHECK(ranked[0].address == better.address);
        CHECK(ranked[0].type == better.type);
    }
    const auto same = rank_gids(
        {{of("10.0.0.2"), 7, IBV_GID_TYPE_ROCE_V2, "eth0"}, {of("10.0.0.1"), 3, IBV_GID_TYPE_ROCE_V2, "eth0"}});
    CHECK(same[0].index == 3);
}

TEST_CASE("The table of GIDs is read to its end, with its holes") {
    testing::fake_verbs fake;
    testing::fake_device_options options;
    auto& port = options.ports[0];
    port.attributes.gid_tbl_len = 3;
    port.gids[0].gid_index = 2; // 0 is empty, 1 can't be read
    ibv_gid_entry zero{};
    port.gids.push_back(zero);
    ibv_context* const context = fake.add_device(options);
    fake.fail("query_gid", 2, EIO);
    const auto found = read_gids(context, 1, 3);
    REQUIRE(found.size() == 1);
    CHECK(found[0].index == 2);
    CHECK(to_address(found[0].address) == "10.0.0.1");
    CHECK(found[0].netdev == "lo"); // its number is 1
    CHECK(fake.calls("query_gid") == 3);
}
