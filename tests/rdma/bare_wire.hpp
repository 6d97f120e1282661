#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

/// The protocol once more, written from the tables in rdma/handshake.hpp and rdma/frame.hpp and from nothing else of
/// rdma/, so that a mistake in the library's own encoders does not cancel itself out.
namespace sluice::bare {

using bytes = std::vector<std::byte>;

/// What a bare peer could not do, or saw and must not see.
struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// What stands in the connection manager's private data, 48 bytes, and over iWARP 12 more: append_witness.
struct hello {
    static constexpr std::size_t length = 48;
    static constexpr std::size_t length_with_witness = 60;
    static constexpr std::uint8_t request = 1;
    static constexpr std::uint8_t accept = 2;
    static constexpr std::uint8_t reject = 3;

    std::string magic = "SLCR";
    std::uint16_t version = 1;
    std::uint8_t kind = request;
    std::uint8_t lanes = 1;
    std::uint8_t lane = 0;
    std::uint8_t capabilities = 0; ///< 1: atomics, 2: a witness follows, 4 times the MTU 1..5
    std::uint16_t slots = 16;
    std::uint16_t credits = 64;
    std::uint16_t reason = 0;
    std::uint32_t operations = 1024;
    std::uint32_t message_bytes = 1U << 20;
    std::uint64_t owner = 0x0123456789abcdef;
    std::array<std::uint8_t, 16> connection{0xf0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0x0f};
};
bytes encode(const hello& h);
/// To a greeting of 48 bytes: the place that the other side reads to learn what has arrived.
void append_witness(bytes& greeting, std::uint64_t address, std::uint32_t key);
/// Takes 48 bytes apart without judging them; throws when there are fewer.
hello parse_hello(std::span<const std::byte> from);

/// What travels by SEND: 32 bytes and the payload.
struct frame {
    static constexpr std::size_t header_length = 32;
    static constexpr std::size_t payload_most = 4096;
    enum kind : std::uint8_t {
        ready = 1,
        message = 2,
        offer = 3,
        accept = 4,
        fragment = 5,
        abandon = 6,
        immediate = 7,
        shared = 8,
        shared_ack = 9,
        revoked = 10,
        credit = 11,
        goodbye = 12,
        goodbye_ack = 13,
    };

    std::uint8_t type = 0;
    std::uint8_t access = 0;
    std::uint16_t slots = 0;
    std::uint16_t credits = 0;
    std::uint16_t payload_bytes = 0;
    std::uint32_t number = 0; ///< immediate, or generation
    std::uint32_t key = 0;
    std::uint64_t size = 0;
    std::uint64_t address = 0;
    bytes payload{};
};
/// The header as it stands, payload_bytes included, whatever the payload's length.
bytes encode(const frame& f);
/// Throws when there are fewer bytes than a header, or payload_bytes is not what follows.
frame parse_frame(std::span<const std::byte> from);

/// A description of memory as it travels in messages: the table of sluice::remote_region.
struct region {
    std::uint16_t access = 0;
    std::uint32_t generation = 0;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t key = 0;
    std::uint64_t owner = 0;
};
bytes encode(const region& r);

/// A message of these bytes.
frame message_of(std::span<const std::byte> payload);
frame message_of(const std::string& text);
/// `count` bytes that tell where they belong.
bytes pattern(std::size_t count, std::uint32_t seed);
bytes part(std::span<const std::byte> of, std::size_t from, std::size_t count);
std::string text_of(std::span<const std::byte> from);

} // namespace sluice::bare
