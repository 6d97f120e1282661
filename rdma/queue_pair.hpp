#pragma once

#include <sluice/region.hpp>
#include <sluice/result.hpp>

#include "rdma/frame.hpp"
#include "rdma/verbs.hpp"
#include "rdma/witness.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::rdma {

class rail;

/// One work request for the send queue.
struct work {
    enum class kind : std::uint8_t { read, write, fetch_add, compare_swap, frame };

    kind what = kind::frame;
    void* owner = nullptr;       ///< comes back with the completion; may be null
    const std::byte* data = nullptr; ///< local bytes: target of read and atomics (8), source of write, payload of frame
    std::uint32_t bytes = 0;     ///< of them; at most the port's largest message
    std::uint32_t local_key = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::uint64_t operand = 0;  ///< added, or stored
    std::uint64_t expected = 0; ///< compare_swap
    frame header{};             ///< of a frame; payload_bytes must equal `bytes`
    bool inline_allowed = true; ///< false for memory that the CPU must not read (GPU)
};

/// How a work request ended.
struct completion {
    ibv_wc_status status = IBV_WC_SUCCESS;
    std::uint32_t vendor_error = 0;
    int refused = 0; ///< errno of ibv_post_send, which did not take it; then the status is IBV_WC_GENERAL_ERR
    bool ok() const noexcept { return status == IBV_WC_SUCCESS; }
    /// Only a consequence: the queue pair was in error already.
    bool flushed() const noexcept { return status == IBV_WC_WR_FLUSH_ERR; }
};

/// Told like an event: the peer sent a frame longer than a slot, or more frames than it may before it is connected.
inline constexpr auto broken_frames = static_cast<ibv_event_type>(31); // the highest bit of those that wait

/// Who uses a queue pair: hears of everything on the rail's executor thread, from within the rail's poll, never from
/// within a call to the queue pair. Meanwhile it may add work, fail, leave (set_user(nullptr)), and destroy this or any
/// other queue pair that may be destroyed; drain_now() is not for callbacks.
class queue_pair_user {
public:
    /// Each work request that was added, exactly once, in the order added.
    virtual void on_work_done(const work& w, const completion& how) noexcept = 0;
    /// What came into a receive slot; the bytes are valid during the call, afterwards the slot is posted again.
    virtual void on_frame(std::span<const std::byte> bytes) noexcept = 0;
    /// After completions: there is more room in the send queue than before. Also when it has become drained.
    virtual void on_room() noexcept = 0;
    /// An asynchronous event of the queue pair or its port [ibv_get_async_event(3)]; several of a kind may be told once.
    /// Device removal as IBV_EVENT_DEVICE_FATAL, a receive that failed as IBV_EVENT_QP_FATAL, a completion queue that
    /// does not work any more as IBV_EVENT_CQ_ERR, or broken_frames: with these the queue pair has failed already.
    /// IBV_EVENT_GID_CHANGE comes only when the queue pair's own GID is no longer in its port's table.
    virtual void on_queue_pair_event(ibv_event_type what) noexcept = 0;

protected:
    ~queue_pair_user() = default;
};

struct queue_pair_options {
    std::uint32_t send_depth = 128;   ///< work requests at once; cut to the device's limit, over iWARP to half of it
    std::uint32_t inline_bytes = 64 + frame::header_bytes; ///< wanted; what the device grants is used
};

/// A reliable connection's queue pair, on a rail: its send queue with what is in flight. Receives come from the rail's
/// shared queue.
///
/// Completions are asked for selectively; one retires all earlier work. Work added in one turn of the executor is posted
/// as one list, when the rail is next polled.
///
/// Thread rule: the rail's executor thread, except create and destroy, which may run on a helper thread while the
/// executor doesn't touch it.
class queue_pair {
public:
    /// Makes the queue pair of `id`, whose device the rail is on; probes downwards for inline_bytes. For a helper thread.
    /// Errors: a limit of the device, with what was asked and what it allows; out_of_resources.
    static result<std::unique_ptr<queue_pair>> create(std::shared_ptr<rail> home, rdma_cm_id* id,
                                                      const queue_pair_options& options = {});
    /// Nothing is in flight; one that was connected is drained as well. On a helper thread: without a user, and
    /// not the last that holds the rail. Destroys the verbs object; before the id goes.
    ~queue_pair();

    /// From now on events go to `user`; frames that came before are handed over in the rail's next poll. Null: nobody,
    /// frames are dropped and the slots posted again.
    void set_user(queue_pair_user* user) noexcept;

    /// Where the peer's rail has its witness: before any work, if this rail has one.
    void set_witness(const witness& of_peer) noexcept;
    /// How many work requests may be added now.
    std::uint32_t room() const noexcept;
    /// Queues it for posting at the rail's next poll; the data must stay until on_work_done. Room must be there. After
    /// fail() it comes back flushed.
    void add(const work& w) noexcept;
    /// Posts what was added without waiting for the rail's poll: for what the peer should hear of before something that
    /// follows on this side.
    void post_now() noexcept;
    /// Work requests added and not done.
    std::uint32_t in_flight() const noexcept;

    /// After the connection is established: timers that the connection manager does not set (min_rnr_timer).
    result<void> tune();
    /// Moves it to the error state: everything in flight comes back, flushed. Idempotent.
    void fail() noexcept;
    /// Tells the user at once of events that wait to be told: also from within on_work_done.
    void tell_events() noexcept;
    /// In error, with nothing in flight and nothing to be received any more: the device said so, or 10 ms have passed, for
    /// not every device says so. It always comes to this after fail(): work that the device keeps back for a second comes
    /// back as flushed after the verbs object was destroyed, which then can't touch memory any more.
    bool drained() const noexcept;
    /// Polls until it is drained, at most `limit`; for destructors, not for callbacks. Users of other queue pairs hear of
    /// theirs meanwhile. False: the device did not give everything back, and the verbs object was destroyed for that; the
    /// rest came back as flushed all the same.
    bool drain_now(std::chrono::nanoseconds limit) noexcept;

    std::uint32_t number() const noexcept; ///< qp_num
    std::uint32_t inline_bytes() const noexcept;
    rail& home() const noexcept;

private:
    friend class rail;
    struct impl;
    explicit queue_pair(std::unique_ptr<impl> made) noexcept;
    std::unique_ptr<impl> impl_;
};

} // namespace sluice::rdma
