#pragma once

#include <sluice/connection.hpp>
#include <sluice/event.hpp>
#include <sluice/sleep.hpp>

#include "net/provider.hpp"
#include "rdma/connection_manager.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/rail.hpp"
#include "rdma/rdma_messages.hpp"
#include "rdma/rdma_requester.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::rdma {

/// What the two ends agreed on, and what is known about the other one.
struct rdma_terms {
    std::uint32_t operations_in_flight = 0;
    std::uint32_t receive_credits = 0;   ///< the same both ways
    std::uint32_t message_bytes_max = 0;
    std::uint32_t slots_of_peer = 0;     ///< frames that the peer can take at once
    std::uint32_t slots_here = 0;        ///< added to the rail for the peer's frames, given back by the connection
    bool atomics = false;                ///< both devices do
    bool connecting_end = false;         ///< this end connected: it sends `ready` first
    std::uint64_t self = 0;              ///< our number in what we share
    std::uint64_t peer = 0;              ///< the other end's
    std::string choice;
    std::string local_address;
    std::string peer_address;
};

/// A lane that is established: the id of the connection manager and its queue pair, which no user has yet. The queue
/// pair goes first.
struct rdma_lane_parts {
    std::unique_ptr<cm_id> id;
    std::unique_ptr<queue_pair> qp;
};

/// One lane of a connection; see rdma_lane.hpp.
class rdma_lane;

/// A connection over one or more queue pairs on one rail.
class rdma_connection final : public detail::provider_connection {
public:
    /// Takes the lanes over; all are established (on the connecting end and on the accepting one).
    rdma_connection(executor& home, const connection_options& options, rdma_terms terms, std::shared_ptr<rail> on,
                    std::vector<rdma_lane_parts> lanes);
    ~rdma_connection() override;
};

} // namespace sluice::rdma
