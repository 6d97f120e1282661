#include "rdma/assembly.hpp"

#include <sluice/contract.hpp>

#include "rdma/rdma_connection.hpp"

#include <utility>

namespace sluice::rdma {

std::unique_ptr<detail::provider_connection> hand_over(executor& home, const connection_options& options,
                                                       const detail::provider_setup& setup, assembly& from,
                                                       const greeting& agreed, const greeting& theirs,
                                                       bool connecting) {
    SLUICE_EXPECTS(!from.lanes.empty() && from.lanes.size() == agreed.lanes,
                   "rdma: a connection without all its lanes");
    rdma_terms terms;
    terms.operations_in_flight = agreed.operations_in_flight;
    terms.receive_credits = agreed.credits;
    terms.message_bytes_max = agreed.message_bytes_max;
    terms.slots_of_peer = theirs.slots;
    terms.slots_here = std::exchange(from.slots, 0);
    terms.atomics = agreed.atomics;
    terms.connecting_end = connecting;
    terms.self = setup.owner;
    terms.peer = theirs.owner;
    terms.choice = setup.choice;
    terms.local_address = from.lanes.front().id->local_address();
    terms.peer_address = from.lanes.front().id->peer_address();
    for (const rdma_lane_parts& lane : from.lanes) {
        lane.id->observe(nullptr);
        if (theirs.witness) lane.qp->set_witness(*theirs.witness);
    }
    return std::make_unique<rdma_connection>(home, options, std::move(terms), std::move(from.on),
                                             std::exchange(from.lanes, {}));
}

} // namespace sluice::rdma
