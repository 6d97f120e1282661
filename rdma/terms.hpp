#pragma once

#include "rdma/connection_manager.hpp"
#include "rdma/queue_pair.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace sluice::rdma {

/// Receive slots that each end of a connection adds to its rail: for the peer's frames, which is the number that it is
/// told, and for the frames `credit`, which use up none.
inline constexpr std::uint32_t slots_for_frames = 16;
inline constexpr std::uint32_t slots_for_frames_least = 4;
inline constexpr std::uint32_t slots_kept_back = 4;

/// What the two ends agreed on, and what is known about the other one.
struct rdma_terms {
    std::uint32_t operations_in_flight = 0;
    std::uint32_t receive_credits = 0;   ///< the same both ways
    std::uint32_t message_bytes_max = 0;
    std::uint32_t slots_of_peer = 0;     ///< frames that the peer can take at once, besides its slots_kept_back
    std::uint32_t slots_here = 0;        ///< added to the rail, those kept back included; given back by the connection
    bool atomics = false;                ///< both devices do
    bool connecting_end = false;         ///< this end connected: it sends `ready` first
    std::uint64_t self = 0;              ///< our number in what we share
    std::uint64_t peer = 0;              ///< the other end's
    std::string choice;
    std::string local_address;
    std::string peer_address;
};

/// A lane that is established: the id of the connection manager and its queue pair, which no user has yet.
struct rdma_lane_parts {
    std::unique_ptr<cm_id> id;
    std::unique_ptr<queue_pair> qp;

    rdma_lane_parts() = default;
    rdma_lane_parts(std::unique_ptr<cm_id> i, std::unique_ptr<queue_pair> q) noexcept
        : id(std::move(i)), qp(std::move(q)) {}
    rdma_lane_parts(rdma_lane_parts&&) noexcept = default;
    rdma_lane_parts& operator=(rdma_lane_parts&&) = delete; // it would drop the id before its queue pair
    /// The queue pair goes first.
    ~rdma_lane_parts() { qp.reset(); }
};

} // namespace sluice::rdma
