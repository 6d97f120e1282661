#pragma once

#include <sluice/result.hpp>

#include "net/provider.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// The bytes that two tcp providers exchange; docs/wire.md has the same as tables and says who sends what when.
/// Everything is little-endian at fixed offsets, and everything that is read is checked before it is believed.
namespace sluice::net {

enum class frame_type : std::uint8_t {
    read = 1,        ///< request: send me [address, +size) of key
    write,           ///< request: put size bytes there; they are here, or follow as data and a commit
    write_immediate, ///< the same, and one receive ends with `immediate`
    fetch_add,       ///< request: add `operand` to the word
    compare_swap,    ///< request: store `operand` where it equals `size`
    offer,           ///< request: take a large message of size bytes
    data,            ///< requester: a piece of the payload of `id`, from offset `address` on
    commit,          ///< requester: that was all of it, or with status canceled: forget it
    cancel,          ///< requester: the read `id` is not wanted any more
    accept,          ///< server: a receive waits for the offered message, send its data
    reply,           ///< server: a piece of what the read `id` asked for, from offset `address` on
    end,             ///< server: the last word about `id`, with its status
    message,         ///< a whole small message
    credit,          ///< `immediate` more messages may be sent
    goodbye,         ///< this end sends nothing more
    goodbye_ack,     ///< a goodbye on every lane has been seen
};
inline constexpr std::uint8_t frame_type_max = static_cast<std::uint8_t>(frame_type::goodbye_ack);
const char* to_string(frame_type type) noexcept;

enum class frame_status : std::uint16_t { ok, access_denied, out_of_range, invalid, canceled };
inline constexpr std::uint16_t frame_status_max = static_cast<std::uint16_t>(frame_status::canceled);

/// | offset | bytes | field         |
/// |--------|-------|---------------|
/// | 0      | 1     | type          |
/// | 1      | 1     | 0             |
/// | 2      | 2     | status        |
/// | 4      | 4     | payload bytes |
/// | 8      | 8     | id            |
/// | 16     | 8     | key           |
/// | 24     | 8     | address       |
/// | 32     | 8     | size          |
/// | 40     | 8     | operand       |
/// | 48     | 4     | generation    |
/// | 52     | 4     | immediate     |
struct frame {
    frame_type type = frame_type::read;
    frame_status status = frame_status::ok;
    std::uint32_t payload_bytes = 0; ///< that follow the header
    std::uint64_t id = 0;            ///< the requester's: slot in the low half, how often it was used in the high one
    std::uint64_t key = 0;
    std::uint64_t address = 0;       ///< in the peer's process; of data and reply: offset in the operation
    std::uint64_t size = 0;          ///< of the whole operation; compare_swap: what is expected
    std::uint64_t operand = 0;       ///< atomics; of end: the value before
    std::uint32_t generation = 0;    ///< of the key
    std::uint32_t immediate = 0;     ///< of credit: how many

    friend bool operator==(const frame&, const frame&) noexcept = default;
};

inline constexpr std::size_t frame_header_bytes = 56;
/// A message up to this size travels at once, a larger one after an offer.
inline constexpr std::uint32_t eager_bytes_max = 4096;
/// A write up to this size travels in its request.
inline constexpr std::uint32_t inline_write_bytes_max = 16 * 1024;
/// What a data frame may carry, and what this version puts into one: large enough that headers don't matter, small
/// enough that others get their turn.
inline constexpr std::uint32_t data_bytes_max = 1 << 20;
inline constexpr std::uint32_t data_bytes = 512 * 1024;
static_assert(data_bytes <= data_bytes_max && eager_bytes_max <= inline_write_bytes_max);

void encode(const frame& f, std::span<std::byte, frame_header_bytes> into) noexcept;
/// Changes the status of an encoded frame.
void set_status(std::span<std::byte, frame_header_bytes> header, frame_status status) noexcept;
/// Errors: errc::protocol_error that names the field and its value.
result<frame> decode(std::span<const std::byte, frame_header_bytes> from);

constexpr std::uint64_t make_id(std::uint32_t slot, std::uint32_t generation) noexcept {
    return std::uint64_t{generation} << 32 | slot;
}
constexpr std::uint32_t slot_of(std::uint64_t id) noexcept { return static_cast<std::uint32_t>(id); }

// ---- the handshake ----

inline constexpr std::uint16_t protocol_version = 1;

enum class greeting_kind : std::uint8_t {
    hello = 1, ///< first lane of a new connection
    attach,    ///< a further lane of the connection that `token` names
    welcome,   ///< answer: taken
    refused,   ///< answer: not taken, `reason` says why
};
enum class refusal : std::uint16_t { none, version, token, lane, busy };

using connection_token = std::array<std::uint64_t, 2>;

/// The first message in each direction of each socket.
///
/// | offset | bytes | field                                             |
/// |--------|-------|---------------------------------------------------|
/// | 0      | 8     | magic "sluice\r\n"                                |
/// | 8      | 2     | lowest version that the sender speaks             |
/// | 10     | 2     | highest version; of an answer: the chosen one     |
/// | 12     | 1     | kind                                              |
/// | 13     | 1     | lane, from 0                                      |
/// | 14     | 2     | lanes                                             |
/// | 16     | 4     | operations in flight                              |
/// | 20     | 4     | receive credits                                   |
/// | 24     | 4     | largest message in bytes                          |
/// | 28     | 2     | reason of a refusal                               |
/// | 30     | 2     | 0                                                 |
/// | 32     | 8     | owner: what stands in the sender's remote_regions     |
/// | 40     | 16    | token of the connection, two numbers              |
struct greeting {
    std::uint16_t version_min = protocol_version;
    std::uint16_t version_max = protocol_version;
    greeting_kind kind = greeting_kind::hello;
    std::uint8_t lane = 0;
    std::uint16_t lanes = 1;
    std::uint32_t operations_in_flight = 0;
    std::uint32_t receive_credits = 0;
    std::uint32_t message_bytes_max = 0;
    refusal reason = refusal::none;
    std::uint64_t owner = 0;
    connection_token token{};

    friend bool operator==(const greeting&, const greeting&) noexcept = default;
};

inline constexpr std::size_t greeting_bytes = 56;
inline constexpr std::uint32_t lanes_max = detail::lanes_max;

std::array<std::byte, greeting_bytes> encode(const greeting& g) noexcept;
/// Errors: errc::protocol_error that quotes the bytes, when they are no sluice greeting.
result<greeting> decode_greeting(std::span<const std::byte, greeting_bytes> from);
/// Whether a greeting can still begin with these bytes; tells a foreign peer before it has sent as many as a greeting.
/// Errors: errc::protocol_error that quotes them.
result<void> check_greeting_start(std::span<const std::byte> received);

} // namespace sluice::net
