#include "net/wire.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

using namespace sluice;
using namespace sluice::net;

namespace {

frame sample(frame_type type) {
    return {.type = type,
            .status = type == frame_type::end ? frame_status::out_of_range : frame_status::ok,
            .payload_bytes = 0,
            .id = make_id(7, 0x80000001),
            .key = 0x1122334455667788,
            .address = 0x7f0011223344,
            .size = 0xfedcba9876543210,
            .operand = 5,
            .generation = 9,
            .immediate = 0xcafef00d};
}

std::array<std::byte, frame_header_bytes> encoded(const frame& f) {
    std::array<std::byte, frame_header_bytes> bytes{};
    encode(f, bytes);
    return bytes;
}

bool says(const error& e, std::string_view text) { return e.message().find(text) != std::string::npos; }

} // namespace

TEST_CASE("Wire.every_frame_comes_back_as_it_was") {
    for (std::uint8_t type = 1; type <= frame_type_max; ++type) {
        const frame f = sample(static_cast<frame_type>(type));
        const auto back = decode(encoded(f));
        REQUIRE(back);
        CHECK(*back == f);
    }
}

TEST_CASE("Wire.numbers_are_little_endian_at_the_documented_offsets") {
    const auto bytes = encoded(sample(frame_type::end));
    const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(bytes[i]); };
    CHECK(at(0) == 12); // end
    CHECK(at(2) == 2);  // out_of_range
    CHECK(at(8) == 7);
    CHECK(at(15) == 0x80);
    CHECK(at(16) == 0x88);
    CHECK(at(23) == 0x11);
    CHECK(at(24) == 0x44);
    CHECK(at(32) == 0x10);
    CHECK(at(40) == 5);
    CHECK(at(48) == 9);
    CHECK(at(52) == 0x0d);
    CHECK(at(55) == 0xca);
}

TEST_CASE("Wire.refuses_a_frame_that_breaks_a_rule_and_names_it") {
    auto bytes = encoded(sample(frame_type::read));
    bytes[0] = std::byte{77};
    CHECK(says(decode(bytes).error(), "type = 77"));
    bytes = encoded(sample(frame_type::read));
    bytes[1] = std::byte{1};
    CHECK(says(decode(bytes).error(), "flags = 1"));
    bytes = encoded(sample(frame_type::read));
    bytes[2] = std::byte{1};
    CHECK(says(decode(bytes).error(), "status of read = 1"));
    bytes[2] = std::byte{9};
    CHECK(says(decode(bytes).error(), "status = 9"));
    frame f = sample(frame_type::message);
    f.payload_bytes = eager_bytes_max;
    CHECK(decode(encoded(f)));
    f.payload_bytes = eager_bytes_max + 1;
    const auto too_much = decode(encoded(f));
    REQUIRE_FALSE(too_much);
    CHECK(too_much.error() == errc::protocol_error);
    CHECK(says(too_much.error(), "payload of message = 4097"));
}

TEST_CASE("Wire.garbage_is_never_more_than_an_error") {
    std::mt19937_64 random(20240229);
    std::uint64_t refused = 0;
    for (int i = 0; i < 100'000; ++i) {
        std::array<std::byte, frame_header_bytes> bytes{};
        for (auto& b : bytes) b = static_cast<std::byte>(random());
        if (i % 2 == 0) bytes[0] = static_cast<std::byte>(1 + random() % frame_type_max);
        if (i % 4 == 0) bytes[1] = bytes[2] = bytes[3] = std::byte{0};
        const auto f = decode(bytes);
        if (!f) {
            ++refused;
            CHECK(f.error() == errc::protocol_error);
        } else {
            CHECK(f->payload_bytes <= data_bytes_max);
            CHECK(encoded(*f) == bytes);
        }
    }
    CHECK(refused > 50'000);
}

TEST_CASE("Wire.a_greeting_comes_back_as_it_was") {
    const greeting g{.kind = greeting_kind::attach,
                     .lane = 3,
                     .lanes = 4,
                     .operations_in_flight = 1024,
                     .receive_credits = 64,
                     .message_bytes_max = 1 << 20,
                     .reason = refusal::lane,
                     .owner = 0x0123456789abcdef,
                     .token = {1, 0xffffffffffffffff}};
    const auto back = decode_greeting(encode(g));
    REQUIRE(back);
    CHECK(*back == g);
}

TEST_CASE("Wire.a_foreign_peer_is_told_by_its_first_bytes") {
    const std::string_view http = "HTTP/1.1 400 Bad Request\r\n";
    const auto bytes = std::as_bytes(std::span(http));
    CHECK(check_greeting_start(std::as_bytes(std::span("slu", 3))));
    const auto refused = check_greeting_start(bytes.first(3));
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == condition::protocol_error);
    CHECK(says(refused.error(), "48 54 54 (\"HTT\")"));
}

TEST_CASE("Wire.a_greeting_of_an_unknown_kind_is_refused") {
    auto bytes = encode(greeting{});
    bytes[12] = std::byte{9};
    const auto refused = decode_greeting(bytes);
    REQUIRE_FALSE(refused);
    CHECK(says(refused.error(), "kind = 9"));
    // A version that we don't speak may give it a meaning.
    bytes[8] = bytes[10] = std::byte{2};
    REQUIRE(decode_greeting(bytes));
    CHECK(decode_greeting(bytes)->version_min == 2);
}
