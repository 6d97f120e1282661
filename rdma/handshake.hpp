#pragma once

#include <sluice/result.hpp>

#include "rdma/witness.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::rdma {

/// What the two ends tell each other in the connection manager's private data: of a request (at most 56 bytes on
/// InfiniBand and RoCE [rdma_connect(3)]), of its acceptance, or of its rejection. 48 bytes, over iWARP 60,
/// little-endian.
/// | offset | bytes | field                                                                     |
/// |--------|-------|---------------------------------------------------------------------------|
/// | 0      | 4     | "SLCR"                                                                    |
/// | 4      | 2     | version = 1                                                               |
/// | 6      | 1     | kind: 1 request, 2 accept, 3 reject                                       |
/// | 7      | 1     | lanes of the connection                                                   |
/// | 8      | 1     | which of them this is                                                     |
/// | 9      | 1     | bits: 1 atomics; 2 a witness follows, which both ends need over iWARP;    |
/// |        |       | 4, 8, 16: MTU of the port, 1 (256 bytes) to 5 (4096 bytes), 0 unknown     |
/// | 10     | 2     | slots: frames that the sender of this can take at once                    |
/// | 12     | 2     | message credits                                                           |
/// | 14     | 2     | reject: why                                                               |
/// | 16     | 4     | one-sided operations at once                                              |
/// | 20     | 4     | largest message in bytes                                                  |
/// | 24     | 8     | owner: number of the runtime in the regions that it shares                |
/// | 32     | 16    | connection: random, the same on all its lanes                             |
/// | 48     | 8     | witness: address of a byte that the other end may read                    |
/// | 56     | 4     | witness: its key                                                          |
struct greeting {
    static constexpr std::size_t encoded_bytes = 48; ///< without a witness
    static constexpr std::size_t witness_bytes = 12;
    static constexpr std::uint16_t current_version = 1;
    enum class kind : std::uint8_t { request = 1, accept = 2, reject = 3 };
    enum class refusal : std::uint16_t {
        none = 0,
        version = 1,
        busy = 2,
        not_sluice = 3,
        no_resources = 4,
        malformed = 5,
        device = 6, ///< not by this device: another one was chosen
    };

    std::uint16_t version = current_version;
    kind what = kind::request;
    std::uint8_t lanes = 1;
    std::uint8_t lane = 0;
    bool atomics = false;
    std::uint8_t path_mtu = 0; ///< of a request: the port's; of its acceptance: the smaller; rdma/path_mtu.hpp
    std::uint16_t slots = 0;
    std::uint16_t credits = 0;
    refusal why = refusal::none;
    std::uint32_t operations_in_flight = 0;
    std::uint32_t message_bytes_max = 0;
    std::uint64_t owner = 0;
    std::array<std::byte, 16> connection{};
    std::optional<rdma::witness> witness{};

    std::vector<std::byte> encode() const;
    /// Trailing zeros are allowed, the transport adds them. Errors: errc::protocol_error (not sluice's, too short, kind,
    /// lanes 0 or over 16, lane not below lanes, an MTU over 5, a limit of 0), errc::version_mismatch with both versions.
    static result<greeting> decode(std::span<const std::byte> bytes);
};

/// "the peer has no room for a further connection"
const char* to_string(greeting::refusal why) noexcept;

} // namespace sluice::rdma
