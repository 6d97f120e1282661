#pragma once

#include "rdma/gid.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/receive_queue.hpp"
#include "rdma/send_queue.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace sluice::rdma {

class completion_queue;

/// A place in a list that knows its neighbours, so that it can be taken out of whatever list it is in.
struct list_link {
    list_link* previous = this;
    list_link* next = this;
    list_link() = default;
    list_link(const list_link&) = delete;
    list_link& operator=(const list_link&) = delete;

    bool alone() const noexcept { return next == this; }
    void unlink() noexcept {
        previous->next = next;
        next->previous = previous;
        previous = next = this;
    }
    void insert_before(list_link& where) noexcept {
        previous = std::exchange(where.previous, this);
        next = &where;
        previous->next = this;
    }
};

/// Lists of queue pairs, each through a link of its own kind.
template <class Link>
class link_list {
public:
    bool empty() const noexcept { return head_.alone(); }
    void push(Link& link) noexcept {
        if (link.alone()) link.insert_before(head_);
    }
    Link& pop() noexcept {
        auto& first = static_cast<Link&>(*head_.next);
        first.unlink();
        return first;
    }
    /// Moves all of the other one behind what is here.
    void take(link_list& other) noexcept {
        while (!other.empty()) push(other.pop());
    }
    /// `visit` may unlink the one that it is given, and no other.
    template <class Visit>
    void for_each(Visit visit) {
        for (list_link* at = head_.next; at != &head_;) {
            list_link* const after = at->next;
            visit(static_cast<Link&>(*at));
            at = after;
        }
    }

private:
    list_link head_;
};

struct posting_link : list_link {};   // has work to post
struct attention_link : list_link {}; // has something to tell its user
struct draining_link : list_link {};  // failed, and the device has not given everything back

/// What the rail has of a queue pair. It outlives the queue_pair when that is destroyed from within a callback, or on a
/// helper thread, until the rail is done with it.
struct queue_pair_state : posting_link, attention_link, draining_link {
    /// What there is to tell the user, after the completions of the rail's poll.
    enum : std::uint8_t {
        tell_frames = 1,
        tell_events = 2,
        tell_returned = 4,
        tell_room = 8,
        tell_receives_done = 16, ///< what there was of them is in the completion queue
    };

    explicit queue_pair_state(send_queue&& queue) : sends(std::move(queue)) {}
    ~queue_pair_state() { unlink(); }
    queue_pair_state(const queue_pair_state&) = delete;
    queue_pair_state& operator=(const queue_pair_state&) = delete;

    // constant after create
    rdma_cm_id* id = nullptr;
    std::uint32_t number = 0;
    std::uint32_t generation = 0;
    std::uint8_t port = 0;
    gid own_gid{}; // zero: none that could go away, as over iWARP
    completion_queue* send_cq = nullptr;
    std::uint32_t reserved = 0; // of its entries

    // executor thread only, once the rail has taken it in
    ibv_qp* qp = nullptr; // null once the rail gave it up
    bool in_map = false;
    send_queue sends;
    queue_pair_user* user = nullptr;
    bool had_user = false;
    bool failed = false;
    bool doomed = false;         // once failed: to be destroyed
    bool receives_done = false;  // once failed: no receive of it comes any more
    bool cause_on_flush = false; // the failure is told with the next work that was flushed
    std::uint8_t to_tell = 0;
    std::uint32_t events = 0;                 // to tell, by the bit of their number
    completion cause{.status = IBV_WC_WR_FLUSH_ERR}; // of the next work that was never posted
    std::chrono::steady_clock::time_point failed_at{};
    std::uint32_t held_count = 0;
    receive_queue::slot_list held; // frames that came while there was no user

    queue_pair_state* next_dead = nullptr; // of the rail's list of those that can go

    void unlink() noexcept {
        posting_link::unlink();
        attention_link::unlink();
        draining_link::unlink();
    }
    bool gave_up() const noexcept { return qp == nullptr; }
    bool drained() const noexcept { return failed && receives_done && sends.in_flight() == 0; }
};

} // namespace sluice::rdma
