#include "rdma/frame.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <vector>

using namespace sluice;
using namespace sluice::rdma;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int types = static_cast<int>(frame_type::goodbye_ack);

/// A frame that this type may be, with random content.
frame make(frame_type type, std::mt19937_64& random) {
    frame f;
    f.type = type;
    f.slots = static_cast<std::uint16_t>(random());
    f.credits = static_cast<std::uint16_t>(random() | 1);
    switch (type) {
    case frame_type::fragment:
    case frame_type::message: f.payload_bytes = static_cast<std::uint16_t>(1 + random() % slot_payload_bytes); break;
    case frame_type::offer:
    case frame_type::accept: f.size = random(); break;
    case frame_type::immediate:
        f.size = random();
        f.immediate = static_cast<std::uint32_t>(random());
        break;
    case frame_type::shared:
        f.size = random() >> 1;
        f.address = random() >> 1;
        f.access_bits = static_cast<std::uint8_t>(random() % 8);
        [[fallthrough]];
    case frame_type::shared_ack:
    case frame_type::revoked:
        f.key = static_cast<std::uint32_t>(random());
        f.immediate = static_cast<std::uint32_t>(random());
        break;
    default: break;
    }
    return f;
}

std::vector<std::byte> on_the_wire(const frame& f) {
    const auto header = f.encode();
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + f.payload_bytes, std::byte{0x5a});
    return bytes;
}

bool same(const frame& a, const frame& b) {
    return a.type == b.type && a.access_bits == b.access_bits && a.slots == b.slots && a.credits == b.credits &&
           a.payload_bytes == b.payload_bytes && a.immediate == b.immediate && a.key == b.key && a.size == b.size &&
           a.address == b.address;
}

std::string refusal(const frame& f) {
    const auto decoded = frame::decode(on_the_wire(f));
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error() == errc::protocol_error);
    return decoded.error().message();
}

} // namespace

TEST_CASE("A frame of any type comes back as it was") {
    const auto type = static_cast<frame_type>(GENERATE(range(1, types + 1)));
    std::mt19937_64 random(static_cast<unsigned>(type));
    for (int i = 0; i < 200; ++i) {
        const frame f = make(type, random);
        const auto decoded = frame::decode(on_the_wire(f));
        REQUIRE(decoded);
        REQUIRE(same(*decoded, f));
    }
}

TEST_CASE("Every byte of the header counts, whichever value it gets") {
    const auto type = static_cast<frame_type>(GENERATE(range(1, types + 1)));
    std::mt19937_64 random(static_cast<unsigned>(type) + 100);
    const frame f = make(type, random);
    const auto good = on_the_wire(f);
    for (std::size_t at = 0; at < frame::header_bytes; ++at)
        for (unsigned value = 0; value < 256; ++value) {
            auto bad = good;
            bad[at] = static_cast<std::byte>(value);
            if (bad == good) continue;
            const auto decoded = frame::decode(bad);
            if (!decoded) CHECK(decoded.error() == errc::protocol_error);
            else {
                REQUIRE_FALSE(same(*decoded, f));
                const auto again = decoded->encode();
                REQUIRE(std::equal(again.begin(), again.end(), bad.begin())); // nothing of it was overlooked
            }
        }
}

TEST_CASE("A frame of any wrong length is refused") {
    std::mt19937_64 random(7);
    const auto good = on_the_wire(make(GENERATE(frame_type::message, frame_type::offer), random));
    std::vector<std::byte> bytes = good;
    bytes.resize(slot_bytes + 100);
    for (std::size_t length = 0; length < bytes.size(); ++length)
        REQUIRE(frame::decode(std::span(bytes).first(length)).has_value() == (length == good.size()));
    CHECK_THAT(frame::decode({}).error().message(), ContainsSubstring("length = 0"));
}

TEST_CASE("A refused frame is named with the value and what is allowed") {
    frame f;
    f.type = frame_type::ready;
    SECTION("a type that there isn't") {
        auto bytes = on_the_wire(f);
        bytes[0] = std::byte{200};
        CHECK_THAT(frame::decode(bytes).error().message(), ContainsSubstring("type = 200, allowed is 1..13"));
    }
    SECTION("a field of another type") {
        f.key = 4711;
        CHECK_THAT(refusal(f), ContainsSubstring("key of ready = 4711, allowed is 0"));
    }
    SECTION("payload where none belongs") {
        f.payload_bytes = 3;
        CHECK_THAT(refusal(f), ContainsSubstring("payload of ready = 3, allowed is 0..0"));
    }
    SECTION("a fragment of nothing") {
        f.type = frame_type::fragment;
        CHECK_THAT(refusal(f), ContainsSubstring("payload of fragment = 0, allowed is 1..4096"));
    }
    SECTION("a credit of nothing") {
        f.type = frame_type::credit;
        CHECK_THAT(refusal(f), ContainsSubstring("slots and credits"));
    }
    SECTION("access bits that there aren't") {
        f.type = frame_type::shared;
        f.access_bits = 8;
        CHECK_THAT(refusal(f), ContainsSubstring("access of shared = 8, allowed is 0..7"));
    }
    SECTION("a region that wraps") {
        f.type = frame_type::shared;
        f.address = ~std::uint64_t{0} - 7;
        f.size = 8;
        CHECK_THAT(refusal(f), ContainsSubstring("size of shared = 8"));
        f.size = 7;
        CHECK(frame::decode(on_the_wire(f)));
    }
    SECTION("more payload than a slot carries") {
        f.type = frame_type::message;
        auto bytes = on_the_wire(f);
        bytes.resize(frame::header_bytes + slot_payload_bytes + 1);
        bytes[6] = std::byte{1};
        bytes[7] = std::byte{0x10};
        CHECK_THAT(frame::decode(bytes).error().message(), ContainsSubstring("payload of message = 4097"));
    }
}

TEST_CASE("Frames have names") {
    CHECK(std::string(to_string(frame_type::goodbye_ack)) == "goodbye_ack");
    CHECK(std::string(to_string(static_cast<frame_type>(0))) == "unknown");
    CHECK(std::string(to_string(static_cast<frame_type>(types + 1))) == "unknown");
}
