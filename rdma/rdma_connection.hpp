#pragma once

#include <sluice/connection.hpp>
#include <sluice/event.hpp>
#include <sluice/sleep.hpp>

#include "net/provider.hpp"
#include "rdma/rail.hpp"
#include "rdma/rdma_messages.hpp"
#include "rdma/rdma_requester.hpp"
#include "rdma/terms.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::rdma {

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
