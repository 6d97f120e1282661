#include "tests/support/death.hpp"

#include <sluice/region.hpp>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using sluice::memory_region;
using sluice::remote_region;

namespace {

remote_region example() {
    return {.address = 0x00007f0102030405,
            .size_bytes = 0x0000000010203040,
            .key = 0xa1a2a3a4a5a6a7a8,
            .owner = 0xb1b2b3b4b5b6b7b8,
            .generation = 0xc1c2c3c4,
            .granted = sluice::access::remote_read | sluice::access::remote_atomic,
            .provider = remote_region::provider_kind::rdma};
}

// version, provider, access, generation, address, size, key, owner
constexpr std::string_view example_text = "01"
                                          "01"
                                          "0500"
                                          "c4c3c2c1"
                                          "05040302017f0000"
                                          "4030201000000000"
                                          "a8a7a6a5a4a3a2a1"
                                          "b8b7b6b5b4b3b2b1";

remote_region any_region(std::mt19937_64& random) {
    remote_region r;
    // Shifted, so that small numbers and the edges come up too.
    r.address = random() >> random() % 64;
    r.size_bytes = std::min(random() >> random() % 64, std::numeric_limits<std::uint64_t>::max() - r.address);
    r.key = random();
    r.owner = random();
    r.generation = static_cast<std::uint32_t>(random());
    r.granted = static_cast<sluice::access>(random() % 8);
    r.provider = static_cast<remote_region::provider_kind>(random() % 2);
    return r;
}

void check_refused(const sluice::result<remote_region>& r, const std::string& text) {
    REQUIRE_FALSE(r);
    CHECK(r.error() == sluice::condition::protocol_error);
    INFO(r.error().message());
    CHECK(r.error().message().find(text) != std::string::npos);
}

} // namespace

TEST_CASE("Remote_region.encoding_has_these_very_bytes") {
    CHECK(example().to_string() == example_text);
    const auto bytes = example().encode();
    CHECK(bytes.size() == 40);
    CHECK(bytes[0] == std::byte{1});
    CHECK(bytes[2] == std::byte{5});
    CHECK(bytes[8] == std::byte{0x05});
    CHECK(bytes[39] == std::byte{0xb1});
    const auto back = remote_region::from_string(example_text);
    REQUIRE(back);
    CHECK(*back == example());
}

TEST_CASE("Remote_region.any_value_survives_bytes_and_text") {
    std::mt19937_64 random(7);
    for (int i = 0; i < 10000; ++i) {
        const remote_region region = any_region(random);
        const auto from_bytes = remote_region::decode(region.encode());
        REQUIRE(from_bytes);
        REQUIRE(*from_bytes == region);
        const auto from_text = remote_region::from_string(region.to_string());
        REQUIRE(from_text);
        REQUIRE(*from_text == region);
    }
}

TEST_CASE("Remote_region.refuses_a_wrong_length") {
    const auto bytes = example().encode();
    std::vector<std::byte> longer(bytes.begin(), bytes.end());
    longer.push_back(std::byte{0});
    check_refused(remote_region::decode({}), "0 bytes, a description has 40");
    check_refused(remote_region::decode(std::span(bytes).first(39)), "39 bytes, a description has 40");
    check_refused(remote_region::decode(longer), "41 bytes, a description has 40");
    check_refused(remote_region::from_string(""), "a text of 0 characters, a description has 80");
    check_refused(remote_region::from_string(example_text.substr(1)), "a text of 79 characters");
    check_refused(remote_region::from_string(std::string(example_text) + "0"), "a text of 81 characters");
}

TEST_CASE("Remote_region.refuses_every_other_version_and_provider_by_value") {
    for (unsigned value = 0; value < 256; ++value) {
        auto bytes = example().encode();
        bytes[0] = static_cast<std::byte>(value);
        if (value == 1) CHECK(remote_region::decode(bytes));
        else check_refused(remote_region::decode(bytes), "version " + std::to_string(value) + ", known is 1");
        bytes = example().encode();
        bytes[1] = static_cast<std::byte>(value);
        if (value <= 1) CHECK(remote_region::decode(bytes));
        else check_refused(remote_region::decode(bytes), "provider " + std::to_string(value) + ", known are 0 (tcp) and 1");
    }
}

TEST_CASE("Remote_region.refuses_each_unknown_access_bit") {
    for (unsigned bit = 0; bit < 16; ++bit) {
        auto bytes = example().encode();
        bytes[2 + bit / 8] = static_cast<std::byte>(1U << bit % 8);
        bytes[bit < 8 ? 3 : 2] = std::byte{0};
        if (bit < 3) CHECK(remote_region::decode(bytes));
        else check_refused(remote_region::decode(bytes), "access bits 0x" + std::string(1, "1248"[bit % 4]) + std::string(bit / 4, '0') + ", known are 0x7");
    }
    auto bytes = example().encode();
    bytes[3] = std::byte{0x80};
    check_refused(remote_region::decode(bytes), "access bits 0x8005, known are 0x7");
}

TEST_CASE("Remote_region.refuses_a_range_that_wraps") {
    remote_region edge = example();
    edge.address = 0xfffffffffffff000;
    edge.size_bytes = 0xfff;
    CHECK(remote_region::decode(edge.encode()));
    edge.size_bytes = 0x1000;
    check_refused(remote_region::decode(edge.encode()), "4096 bytes from address 0xfffffffffffff000 leave the address space");
    edge.address = 1;
    edge.size_bytes = std::numeric_limits<std::uint64_t>::max();
    check_refused(remote_region::decode(edge.encode()), "18446744073709551615 bytes from address 0x1");
}

TEST_CASE("Remote_region.refuses_any_other_character_at_any_place") {
    for (std::size_t at = 0; at < example_text.size(); ++at)
        for (const char wrong : {'A', 'g', ' ', '-', '\0', '/', ':', '`'}) {
            std::string text(example_text);
            text[at] = wrong;
            check_refused(remote_region::from_string(text), "character " + std::to_string(at + 1) + " of the text has the value 0x");
        }
    std::string text(example_text);
    text[5] = '\n'; // printed as a number: a log line must not be broken by what a peer sends
    check_refused(remote_region::from_string(text), "has the value 0xa, allowed are 0-9 and a-f");
}

TEST_CASE("Remote_region.a_changed_bit_changes_the_value_or_is_refused") {
    const auto good = example().encode();
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
        auto bytes = good;
        bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
        const auto r = remote_region::decode(bytes);
        if (r) CHECK_FALSE(*r == example());
        else CHECK(r.error() == sluice::condition::protocol_error);
    }
}

TEST_CASE("Remote_view.keeps_to_its_bounds") {
    const remote_region region = example();
    const sluice::remote_view part = region.subview(16, 32).subview(8, 8);
    CHECK(part.address() == region.address + 24);
    CHECK(part.offset() == 24);
    CHECK(part.size_bytes() == 8);
    CHECK(region.first(region.size_bytes).size_bytes() == region.size_bytes);
    CHECK_BREAKS_CONTRACT("remote view: subview past the end", static_cast<void>(example().first(example().size_bytes + 1)));
    CHECK_BREAKS_CONTRACT("remote view: subview past the end",
                          static_cast<void>(example().subview(1, std::numeric_limits<std::uint64_t>::max())));
}

TEST_CASE("Memory_region.registers_a_range_and_gives_views_of_it") {
    std::array<std::byte, 64> memory{};
    auto made = memory_region::create(memory, sluice::memory_kind::pinned);
    REQUIRE(made);
    const memory_region region = std::move(*made);
    CHECK(region.size_bytes() == 64);
    CHECK(region.view().data() == memory.data());
    CHECK(region.view().registration()->kind == sluice::memory_kind::pinned);
    const sluice::region_view part = region.view().subview(16, 8);
    CHECK(part.data() == memory.data() + 16);
    CHECK(part.size_bytes() == 8);
    const sluice::const_region_view source = part;
    CHECK(source.data() == part.data());
    CHECK(source.registration() == region.view().registration());
}

TEST_CASE("Memory_region.refuses_an_empty_range") {
    const auto none = memory_region::create({});
    REQUIRE_FALSE(none);
    CHECK(none.error() == sluice::condition::invalid);
    CHECK(memory_region().view().size_bytes() == 0);
}

TEST_CASE("Region_view.a_range_that_leaves_its_memory_stops_the_process") {
    static std::array<std::byte, 64> memory{};
    CHECK_BREAKS_CONTRACT("region view: subview past the end", auto r = std::move(memory_region::create(memory)).value();
                          static_cast<void>(r.view().subview(60, 5)));
    CHECK_BREAKS_CONTRACT("region view: outside its registered memory",
                          auto r = std::move(memory_region::create(memory)).value();
                          sluice::region_view(memory.data() + 1, 64, *r.view().registration()));
}
