#pragma once

#include "rdma/connection_manager.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/terms.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace sluice::rdma {

class rdma_connection;

/// One queue pair of a connection: passes what happens to it on.
class lane final : public queue_pair_user, public cm_observer {
public:
    lane(rdma_connection& connection, std::uint32_t index, rdma_lane_parts parts) noexcept;
    ~lane();
    lane(const lane&) = delete;
    lane& operator=(const lane&) = delete;

    queue_pair& qp() noexcept { return *parts_.qp; }
    std::uint32_t index() const noexcept { return index_; }
    /// Says goodbye to the connection manager and moves the queue pair to error: everything in flight comes back.
    void shut() noexcept;
    /// For destructors: nobody hears of what comes back any more.
    void end() noexcept;

    bool usable = false;               ///< the accepting end sends nothing before the connecting one has
    std::uint64_t bytes_in_flight = 0; ///< of one-sided operations

    void on_work_done(const work& w, const completion& how) noexcept override;
    void on_frame(std::span<const std::byte> bytes) noexcept override;
    void on_room() noexcept override;
    void on_queue_pair_event(ibv_event_type what) noexcept override;
    void on_cm_event(cm_id& id, cm_event e) noexcept override;

private:
    rdma_connection& connection_;
    const std::uint32_t index_;
    rdma_lane_parts parts_;
    bool shut_ = false;
};

} // namespace sluice::rdma
