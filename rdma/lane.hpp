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
    std::uint8_t port() const noexcept { return port_; }
    bool has_local_address() const noexcept { return parts_.id->has_local_address(); }
    /// Says goodbye to the connection manager and moves the queue pair to error: everything in flight comes back.
    void shut() noexcept;
    /// For destructors: nobody hears of what comes back any more.
    void end() noexcept;
    /// Shuts it and gives away what it is made of, for somebody who ends that elsewhere; empty the second time.
    rdma_lane_parts release() noexcept;

    bool usable = false;               ///< the accepting end sends nothing before the connecting one has
    std::uint64_t bytes_in_flight = 0; ///< of one-sided operations
    bool answered = false;             ///< work ended well since the last pulse
    bool ever_answered = false;

    /// At each pulse; `heard`: of the peer, on any lane. For how many pulses nothing has come of work, and if there was
    /// none, the peer was not heard.
    int silent_pulses(bool heard) noexcept {
        if (std::exchange(answered, false) || (was_idle_ && heard)) silent_pulses_ = 0;
        else ++silent_pulses_;
        was_idle_ = qp().in_flight() == 0;
        return silent_pulses_;
    }

    void on_work_done(const work& w, const completion& how) noexcept override;
    void on_frame(std::span<const std::byte> bytes) noexcept override;
    void on_room() noexcept override;
    void on_queue_pair_event(ibv_event_type what) noexcept override;
    void on_cm_event(cm_id& id, cm_event e) noexcept override;

private:
    rdma_connection& connection_;
    const std::uint32_t index_;
    rdma_lane_parts parts_;
    const std::uint8_t port_;
    int silent_pulses_ = 0;
    bool was_idle_ = true; // at the last pulse
    bool shut_ = false;
};

/// What is in a send queue is in front of whatever comes later, and can't be withdrawn.
inline constexpr std::uint64_t lane_bytes_max = std::uint64_t{16} << 20;

} // namespace sluice::rdma
