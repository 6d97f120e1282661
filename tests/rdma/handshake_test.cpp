#include "rdma/handshake.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <vector>

using namespace sluice;
using namespace sluice::rdma;
using Catch::Matchers::ContainsSubstring;

namespace {

greeting make(greeting::kind what, std::mt19937_64& random) {
    greeting g;
    g.what = what;
    g.lanes = static_cast<std::uint8_t>(1 + random() % 16);
    g.lane = static_cast<std::uint8_t>(random() % g.lanes);
    g.atomics = random() % 2 != 0;
    g.path_mtu = static_cast<std::uint8_t>(random() % 6);
    g.slots = static_cast<std::uint16_t>(random() | 1);
    g.credits = static_cast<std::uint16_t>(random() | 1);
    if (what == greeting::kind::reject) g.why = static_cast<greeting::refusal>(1 + random() % 6);
    g.operations_in_flight = static_cast<std::uint32_t>(random() | 1);
    g.message_bytes_max = static_cast<std::uint32_t>(random() | 1);
    g.owner = random();
    for (auto& each : g.connection) each = static_cast<std::byte>(random());
    if (random() % 2 != 0) g.witness = {random(), static_cast<std::uint32_t>(random())};
    return g;
}

bool same(const greeting& a, const greeting& b) {
    return a.version == b.version && a.what == b.what && a.lanes == b.lanes && a.lane == b.lane &&
           a.atomics == b.atomics && a.path_mtu == b.path_mtu && a.slots == b.slots && a.credits == b.credits && a.why == b.why &&
           a.operations_in_flight == b.operations_in_flight && a.message_bytes_max == b.message_bytes_max &&
           a.owner == b.owner && a.connection == b.connection && a.witness == b.witness;
}

std::string refusal(std::span<const std::byte> bytes) {
    const auto decoded = greeting::decode(bytes);
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error() == errc::protocol_error);
    return decoded.error().message();
}

} // namespace

TEST_CASE("A greeting comes back as it was, padded by the transport or not") {
    const auto what = static_cast<greeting::kind>(GENERATE(1, 2, 3));
    std::mt19937_64 random(static_cast<unsigned>(what));
    for (std::size_t padding : {0U, 1U, 8U, 148U, 0U, 1U, 8U, 148U}) {
        const greeting g = make(what, random);
        const auto encoded = g.encode();
        std::vector<std::byte> bytes(encoded.begin(), encoded.end());
        bytes.resize(bytes.size() + padding);
        const auto decoded = greeting::decode(bytes);
        REQUIRE(decoded);
        CHECK(same(*decoded, g));
    }
}

TEST_CASE("Every byte of a greeting counts, whichever value it gets") {
    const auto what = static_cast<greeting::kind>(GENERATE(1, 2, 3));
    std::mt19937_64 random(static_cast<unsigned>(what) + 10);
    greeting g = make(what, random);
    g.witness.reset();
    if (GENERATE(false, true)) g.witness = {0x1234'5678'9abc'def0, 0x0fed'cba9};
    const auto good = g.encode();
    CHECK(good.size() == (g.witness ? 60U : 48U));
    for (std::size_t at = 0; at < good.size(); ++at)
        for (unsigned value = 0; value < 256; ++value) {
            auto bad = good;
            bad[at] = static_cast<std::byte>(value);
            if (bad == good) continue;
            const auto decoded = greeting::decode(bad);
            if (!decoded) {
                const bool expected =
                    decoded.error() == errc::protocol_error || decoded.error() == errc::version_mismatch;
                REQUIRE(expected);
            } else {
                REQUIRE_FALSE(same(*decoded, g));
                REQUIRE(decoded->encode() == bad);
            }
        }
}

TEST_CASE("A greeting that is cut short is refused at every length") {
    std::mt19937_64 random(5);
    greeting g = make(greeting::kind::request, random);
    g.witness = {1, 2};
    const auto good = g.encode();
    for (std::size_t length = 0; length < good.size(); ++length) refusal(std::span(good).first(length));
}

TEST_CASE("A refused greeting is named with the value and what is allowed") {
    std::mt19937_64 random(6);
    greeting g = make(greeting::kind::accept, random);
    g.lanes = 4;
    g.lane = 3;
    auto bytes = g.encode();
    SECTION("of another program") {
        bytes[0] = std::byte{'H'};
        CHECK_THAT(refusal(bytes), ContainsSubstring("\"HLCR\""));
    }
    SECTION("of another version") {
        bytes[4] = std::byte{9};
        const auto decoded = greeting::decode(bytes);
        REQUIRE_FALSE(decoded);
        CHECK(decoded.error() == errc::version_mismatch);
        CHECK_THAT(decoded.error().message(), ContainsSubstring("version 9") && ContainsSubstring("version 1"));
    }
    SECTION("a kind that there isn't") {
        bytes[6] = std::byte{4};
        CHECK_THAT(refusal(bytes), ContainsSubstring("kind = 4, allowed is 1..3"));
    }
    SECTION("a bit that means nothing") {
        bytes[9] = std::byte{24};
        CHECK_THAT(refusal(bytes), ContainsSubstring("capability bits = 24") && ContainsSubstring("2 (a witness)") &&
                                       ContainsSubstring("the MTU 0..5"));
    }
    SECTION("a witness announced that isn't there") {
        bytes.resize(greeting::encoded_bytes + greeting::witness_bytes - 1);
        bytes[9] = std::byte{2};
        CHECK_THAT(refusal(bytes), ContainsSubstring("59 bytes, a greeting with a witness has 60"));
    }
    SECTION("no lanes, and too many") {
        bytes[7] = std::byte{0};
        CHECK_THAT(refusal(bytes), ContainsSubstring("lanes = 0, allowed is 1..16"));
        bytes[7] = std::byte{17};
        CHECK_THAT(refusal(bytes), ContainsSubstring("lanes = 17"));
    }
    SECTION("a lane that is none of them") {
        bytes[8] = std::byte{4};
        CHECK_THAT(refusal(bytes), ContainsSubstring("lane = 4, allowed is 0..3"));
    }
    SECTION("a limit of 0") {
        const auto [at, width, name] = GENERATE(table<std::size_t, std::size_t, std::string>(
            {{10, 2, "slots"}, {12, 2, "message credits"}, {16, 4, "operations"}, {20, 4, "largest message"}}));
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), width, std::byte{0});
        CHECK_THAT(refusal(bytes), ContainsSubstring(name));
    }
    SECTION("a reason although nothing is refused, and a refusal without one") {
        bytes[14] = std::byte{2};
        CHECK_THAT(refusal(bytes), ContainsSubstring("reason of a rejection = 2"));
        bytes[6] = std::byte{3};
        CHECK(greeting::decode(bytes));
        bytes[14] = std::byte{0};
        CHECK_THAT(refusal(bytes), ContainsSubstring("allowed is 1..5"));
    }
    SECTION("something after it") {
        std::vector<std::byte> longer(bytes.begin(), bytes.end());
        longer.resize(longer.size() + 8);
        longer.back() = std::byte{7};
        CHECK_THAT(refusal(longer), ContainsSubstring("after the greeting = 7"));
    }
}

TEST_CASE("A refusal has no limits to promise") {
    greeting g;
    g.what = greeting::kind::reject;
    g.why = greeting::refusal::busy;
    const auto decoded = greeting::decode(g.encode());
    REQUIRE(decoded);
    CHECK(std::string(to_string(decoded->why)) == "the peer has no room for a further connection");
}
