#pragma once

#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/sleep.hpp>

#include "net/background.hpp"
#include "rdma/completion_queue.hpp"
#include "rdma/device.hpp"
#include "rdma/gid.hpp"
#include "rdma/private_memory.hpp"
#include "rdma/queue_pair_map.hpp"
#include "rdma/queue_pair_state.hpp"
#include "rdma/rail.hpp"
#include "rdma/receive_queue.hpp"
#include "rdma/verbs.hpp"
#include "runtime/poll_source.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace sluice::rdma {

/// How long a queue pair in error may keep back what it took from the shared receive queue before it counts as drained:
/// not every device says when it has given up the last (IBV_EVENT_QP_LAST_WQE_REACHED). What comes later is dropped.
inline constexpr std::chrono::milliseconds receives_flushed_within{10};
/// How long it may keep back work. Then it is destroyed, after which the device touches its memory no more, and the
/// work comes back as flushed: so a drain always ends.
inline constexpr std::chrono::milliseconds work_flushed_within{1000};

/// What a rail consists of: it outlives the rail when that goes from within a callback, until the poll is over.
///
/// Each poll posts what was added, handles completions, tells users what they are owed, posts the slots that they used,
/// and then the work that came up meanwhile: so a credit is never sent before its slot is there.
class rail_core final : public detail::poll_source, public device_observer {
public:
    /// The verbs objects, nothing that lives on the executor yet. For a helper thread.
    static result<std::unique_ptr<rail_core>> create(executor& home, device& on);
    /// Begins to be polled and told of events. Executor thread.
    void start();
    ~rail_core();

    bool poll() noexcept override;
    void arm() noexcept override;
    void on_device_event(ibv_event_type what, std::uint32_t qp_num, std::uint8_t port) noexcept override;
    bool owns_queue(const void* queue) const noexcept override;

    device& on() const noexcept { return on_; }
    receive_queue& receives() noexcept { return *receives_; }
    rail::stats counters() const noexcept;
    /// A queue of it does not work any more: for new connections there must be another rail.
    bool broken() const noexcept { return first_->broken(); }
    bool in_poll() const noexcept { return polling_; }
    /// Its rail is gone: it goes when the poll is over.
    void orphan() noexcept { orphaned_ = true; }

    // ---- for queue pairs, any thread ----

    std::uint32_t new_generation() noexcept {
        return generations_.fetch_add(1, std::memory_order_relaxed) & 0x7FFF'FFFFU;
    }
    /// A completion queue with this much reserved; a new one when there is no room in the others.
    result<completion_queue*> reserve(std::uint32_t entries);
    void release(completion_queue& from, std::uint32_t entries) noexcept;
    /// The one that all receives report to.
    ibv_cq* receive_cq() const noexcept { return first_->get(); }
    /// See rail::witness.
    std::optional<rdma::witness> witness() const noexcept;
    /// Where its bytes go that were read from peers.
    ibv_sge read_from_witness() const noexcept;
    /// Completions of it are handled from now on.
    void take_in(queue_pair_state& q);
    ///@{
    /// The two ends of destroying one on a helper thread: nothing of it is handled any more; it may be deleted.
    void leave(queue_pair_state& q);
    void bury_later(std::unique_ptr<queue_pair_state> q) noexcept;
    ///@}

    // ---- for queue pairs, executor thread ----

    /// It has work to post.
    void wants_posting(queue_pair_state& q) noexcept { to_post_.push(q); }
    /// Without waiting for the next poll.
    void post_now(queue_pair_state& q) noexcept { post(q); }
    /// It has something to tell its user: tell_*.
    void wants_attention(queue_pair_state& q, unsigned what) noexcept {
        q.to_tell = static_cast<std::uint8_t>(q.to_tell | what);
        to_tell_.push(q);
    }
    void fail(queue_pair_state& q) noexcept;
    static void tell_events(queue_pair_state& q) noexcept;
    /// Nothing of it is handled any more, and what it held is given back.
    void take_out(queue_pair_state& q) noexcept;
    /// Deletes it, at the end of a poll if this is within one.
    void bury(std::unique_ptr<queue_pair_state> q) noexcept;
    /// Has its verbs object destroyed by the next poll; what the device had of it comes back as flushed.
    void give_up(queue_pair_state& q) noexcept;
    /// Gives up those whose time is over.
    void check_draining() noexcept;

private:
    rail_core(executor& home, device& on) noexcept;
    result<void> make_queues(std::uint32_t slots);
    static net::background watch_channel(rail_core& self);
    static net::background watch_device(rail_core& self);
    static net::background watch_gids(rail_core& self);
    void read_gids_of(std::uint8_t port);
    void tell_who_lost_its_gid(std::uint8_t port);
    bool drain_channel() noexcept;

    // completions: rail_completions.cpp
    bool reap(completion_queue& from) noexcept;
    void reap_receives() noexcept;
    void queue_broke(completion_queue& which) noexcept;
    void break_all(const char* call, int reason) noexcept;
    void on_sent(const ibv_wc& wc) noexcept;
    void on_send_failed(queue_pair_state& q, std::uint32_t count, const ibv_wc& wc) noexcept;
    void on_received(const ibv_wc& wc) noexcept;
    bool tell_all() noexcept;
    void tell(queue_pair_state& q) noexcept;
    static bool tell_returned(queue_pair_state& q) noexcept;
    void tell_frames(queue_pair_state& q) noexcept;
    void give_back_held(queue_pair_state& q) noexcept;
    void give_back_first_held(queue_pair_state& q) noexcept;
    static void retire(queue_pair_state& q, const completion& how) noexcept;

    // posting
    void post_all() noexcept;
    void post(queue_pair_state& q) noexcept;
    void post_failed(queue_pair_state& q, std::uint32_t count, int reason, const ibv_send_wr* bad) noexcept;

    // coming and going
    queue_pair_state* find(std::uint32_t number) noexcept {
        queue_pair_state* const found = pairs_.find(number);
        if (found == nullptr && changed_.load(std::memory_order_acquire)) [[unlikely]]
            return find_new(number);
        return found;
    }
    queue_pair_state* find_new(std::uint32_t number) noexcept;
    void take_changes() noexcept;
    void forget(queue_pair_state& q) noexcept;
    bool is_leaving(const queue_pair_state& q) const noexcept;
    void mark_failed(queue_pair_state& q) noexcept;
    void destroy_doomed() noexcept;
    void destroy(queue_pair_state& q) noexcept;
    void delete_dead() noexcept;
    void start_drain_timer(std::chrono::steady_clock::time_point at) noexcept;
    void add_event(queue_pair_state& q, ibv_event_type what) noexcept {
        q.events |= 1U << static_cast<unsigned>(what);
        wants_attention(q, queue_pair_state::tell_events);
    }

    struct drain_timer : detail::timer_node {
        rail_core* self = nullptr;
    };

    // constant after start
    device& on_;
    const verbs& api_;
    ibv_comp_channel* channel_ = nullptr;
    completion_queue* first_ = nullptr;
    std::unique_ptr<receive_queue> receives_;
    std::optional<private_memory> witness_;
    bool started_ = false;

    // executor thread only
    std::vector<completion_queue*> queues_; // polled: the one of the receives first, without those that broke
    std::size_t queues_taken_ = 0;          // of the owned ones, in their order
    queue_pair_map pairs_;
    link_list<posting_link> to_post_;
    link_list<attention_link> to_tell_;
    link_list<draining_link> draining_;
    queue_pair_state* dead_ = nullptr; // deleted at the end of the poll
    drain_timer timer_;
    net::background channel_watch_;
    net::background device_watch_;
    net::background gid_watch_;
    net::parking_spot gids_changed_;
    net::parking_spot sleeps_;
    bool channel_watched_ = false; // or about to be
    std::vector<std::uint8_t> ports_changed_; // whose tables are to be read
    std::optional<std::vector<gid_entry>> table_; // the last that was read, by a helper thread
    bool any_doomed_ = false;
    bool polling_ = false;
    bool orphaned_ = false;
    bool device_gone_ = false; // which is all that its users are told
    rail::stats stats_;
    work_chain chain_;

    // any thread, under the mutex
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<completion_queue>> owned_queues_;
    std::vector<queue_pair_state*> arrivals_;
    std::vector<queue_pair_state*> departures_;
    queue_pair_state* departed_ = nullptr; // can be deleted

    // any thread
    std::atomic<bool> changed_{false}; // there is something new under the mutex
    std::atomic<std::uint32_t> generations_{0};
};

} // namespace sluice::rdma
