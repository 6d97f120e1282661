#pragma once

#include <sluice/connection.hpp>
#include <sluice/event.hpp>
#include <sluice/sleep.hpp>

#include "net/provider.hpp"
#include "rdma/inbox.hpp"
#include "rdma/lane.hpp"
#include "rdma/outbox.hpp"
#include "rdma/rail.hpp"
#include "rdma/requester.hpp"
#include "rdma/shares.hpp"
#include "rdma/terms.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::rdma {

/// A connection over one or more queue pairs on one rail. This class holds the parts together and decides how it ends:
/// by a goodbye of either side, or by the first failure.
class rdma_connection final : public detail::provider_connection {
public:
    /// Takes the lanes over; all are established.
    rdma_connection(executor& home, const connection_options& options, rdma_terms terms, std::shared_ptr<rail> on,
                    std::vector<rdma_lane_parts> lanes);
    ~rdma_connection() override;

    void start(detail::transfer& t) noexcept override;
    void cancel(detail::transfer& t, error why) noexcept override;
    task<result<shared>> share(region_view memory, access granted) override;
    task<result<void>> close() override;
    task<result<void>> closed() override;
    bool is_open() const noexcept override { return state_ == state::open; }
    sluice::path path() const noexcept override { return sluice::path::rdma; }
    sluice::capabilities capabilities() const noexcept override;
    std::string peer_address() const override { return terms_.peer_address; }
    std::string local_address() const override { return terms_.local_address; }
    std::string choice() const override { return terms_.choice; }
    connection_stats stats() const override;

    // ---- for its parts ----
    const rdma_terms& terms() const noexcept { return terms_; }
    rail& home_rail() const noexcept { return *rail_; }
    std::uint32_t lane_count() const noexcept { return static_cast<std::uint32_t>(lanes_.size()); }
    lane& lane_at(std::uint32_t index) noexcept { return *lanes_[index]; }
    requester& one_sided() noexcept { return requester_; }
    outbox& out() noexcept { return outbox_; }
    /// Slots here that the peer may spend.
    std::uint32_t slots_told() const noexcept { return slots_told_; }
    /// As far as this end knows.
    result<void> check_share(const detail::transfer& t) const { return shares_.check(t); }
    std::uint64_t largest_shared_bytes() const noexcept { return shares_.largest_bytes(); }
    /// Of one work request: so large that its cost does not show, so small that lanes share one transfer and that others
    /// get their turn.
    std::uint64_t work_bytes_max() const noexcept { return work_bytes_max_; }
    void count_copy(std::size_t bytes) noexcept { copied_bytes_ += bytes; }
    /// Why operations end that have no reason of their own.
    error cause() const { return cause_ ? *cause_ : error(errc::closed); }
    /// The connection is broken; the first call decides why.
    void fail(error why) noexcept;
    /// A part of t failed: says why for t, if it is to blame, and for the connection.
    void work_failed(const detail::transfer& t, const work& w, const completion& how);
    /// The goodbye of this end is on its way: nothing but credits and goodbye_ack may follow it.
    bool said_goodbye() const noexcept { return state_ == state::said_goodbye; }
    /// Something was sent or given up: perhaps it is time for the goodbye.
    void something_left() noexcept;

    // ---- for its lanes ----
    void on_work_done(lane& on, const work& w, const completion& how) noexcept;
    void on_control_done(const work& w, const completion& how) noexcept;
    void on_frame(lane& on, std::span<const std::byte> bytes) noexcept;
    void on_room() noexcept;
    void on_queue_pair_event(lane& on, ibv_event_type what) noexcept;
    void on_cm_event(const cm_event& e) noexcept;

private:
    enum class state : std::uint8_t {
        open,
        closing,      ///< close() was called: what was started leaves
        said_goodbye, ///< the peer's acknowledgement is awaited
        peer_left,    ///< the peer said goodbye, we acknowledge and wait for it to disconnect
        ending,       ///< the queue pairs are in error: work comes back
        down
    };
    struct timer : detail::timer_node {
        rdma_connection* owner = nullptr;
    };

    result<void> check(const detail::transfer& t) const;
    result<void> dispatch(lane& on, const frame& f, std::span<const std::byte> payload);
    error refusal(const completion& how) const;
    bool ended_by_peer(const completion& how) const noexcept;
    void on_goodbye() noexcept;
    result<void> on_goodbye_ack();
    void leave() noexcept;
    void begin_close() noexcept;
    void peer_is_gone() noexcept;
    std::optional<error> device_trouble();
    void tear_down() noexcept;
    void check_drained() noexcept;
    void end_everything() noexcept;
    void restart(timer& t, std::chrono::nanoseconds after) noexcept;
    static void on_close_timeout(detail::timer_node& node) noexcept;
    static void on_pulse(detail::timer_node& node) noexcept;
    static void on_drain_check(detail::timer_node& node) noexcept;
    static void on_nudge(detail::timer_node& node) noexcept;
    void probe(lane& on) noexcept;

    rdma_terms terms_;
    std::shared_ptr<rail> rail_;
    std::uint64_t work_bytes_max_ = 0;
    std::uint32_t slots_told_ = 0;
    state state_ = state::open;
    std::optional<error> cause_;   // of operations that end now
    std::optional<error> failure_; // why it broke; none after a goodbye
    bool goodbye_acknowledged_ = false; // by the peer
    bool acknowledged_goodbye_ = false; // by us, and it has arrived
    bool peer_said_goodbye_ = false;
    bool deaf_ = false; // to a peer that broke the protocol
    timer close_timer_;
    timer pulse_;
    timer drain_check_;
    timer nudge_;
    std::chrono::milliseconds nudge_after_{1};
    static constexpr int pulses_per_timeout = 8; // a loss is found within one more
    static constexpr int pulses_before_doubt = 2; // of this end's own device
    bool sign_of_life_ = false; // of the peer, since the last pulse
    std::uint32_t probes_ = 0; // in flight
    bool answers_first_ = false; // the last thing before the queue pairs go to error is a probe
    std::uint32_t shares_under_way_ = 0;
    std::uint64_t copied_bytes_ = 0;
    std::uint64_t refused_ = 0;
    event down_;
    std::vector<std::unique_ptr<lane>> lanes_;
    requester requester_;
    outbox outbox_;
    inbox inbox_;
    shares shares_;
};

} // namespace sluice::rdma
