#pragma once

#include "rdma/verbs.hpp"

#include <string>
#include <vector>

namespace sluice::rdma::testing {

/// What the library holds of verbs and the connection manager now. It counts where this is linked in: the table of
/// verbs that is in use is the real one, with counting calls in place of those that make and destroy.
struct live_objects {
    long ids = 0;
    long event_channels = 0;
    long queue_pairs = 0;
    long receive_queues = 0;
    long completion_queues = 0;
    long completion_channels = 0;
    long memory_regions = 0;
    friend bool operator==(const live_objects&, const live_objects&) = default;
    std::string to_string() const;
};
live_objects count_live();

/// The library's queue pairs that are alive, oldest first. Not while some are made or destroyed.
std::vector<ibv_qp*> live_queue_pairs();

} // namespace sluice::rdma::testing
