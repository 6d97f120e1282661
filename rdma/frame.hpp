#pragma once

#include <sluice/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::rdma {

/// What a frame is for. Frames travel by SEND on the first lane, each into one receive slot of the peer; every lane
/// starts with `ready`.
enum class frame_type : std::uint8_t {
    ready = 1,   ///< the first of the connecting end, on each lane: the accepting end sends nothing before
    message,     ///< a whole small message
    offer,       ///< a large message is there: size
    accept,      ///< a receive waits for the oldest offer; size 0: nobody wants it, the sender is through
    fragment,    ///< a part of the accepted message
    abandon,     ///< no more of the accepted message comes
    immediate,   ///< what a write with immediate was: size and immediate
    shared,      ///< a region that may be used from now on: key, generation, address, size, access
    shared_ack,  ///< it is known: key, generation
    revoked,     ///< key, generation: dead now
    credit,      ///< gives back slots, message credits, or both, and nothing else
    goodbye,     ///< nothing is started any more
    goodbye_ack, ///< nothing comes any more
};
const char* to_string(frame_type type) noexcept;

/// The header of a frame, 32 bytes, little-endian.
/// | offset | bytes | field                                             |
/// |--------|-------|---------------------------------------------------|
/// | 0      | 1     | type                                              |
/// | 1      | 1     | access bits of shared, else 0                     |
/// | 2      | 2     | slots given back                                  |
/// | 4      | 2     | message credits given back                        |
/// | 6      | 2     | bytes of payload after the header                 |
/// | 8      | 4     | immediate, or generation                          |
/// | 12     | 4     | key                                               |
/// | 16     | 8     | size of the message, the write, or the region     |
/// | 24     | 8     | address of shared, else 0                         |
struct frame {
    static constexpr std::size_t header_bytes = 32;

    frame_type type = frame_type::credit;
    std::uint8_t access_bits = 0;
    std::uint16_t slots = 0;
    std::uint16_t credits = 0;
    std::uint16_t payload_bytes = 0;
    std::uint32_t immediate = 0; ///< or generation
    std::uint32_t key = 0;
    std::uint64_t size = 0;
    std::uint64_t address = 0;

    std::array<std::byte, header_bytes> encode() const noexcept;
    /// Of everything that came, header and payload. Errors: errc::protocol_error with the offending value (length, type,
    /// payload_bytes, a field that this type doesn't have and that isn't 0).
    static result<frame> decode(std::span<const std::byte> bytes);
};

/// Bytes of a receive slot, header included, and what one carries.
inline constexpr std::size_t slot_bytes = 4096 + frame::header_bytes;
inline constexpr std::size_t slot_payload_bytes = slot_bytes - frame::header_bytes;

} // namespace sluice::rdma
