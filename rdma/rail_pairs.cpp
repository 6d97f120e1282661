#include "rdma/quirks.hpp"
#include "rdma/rail_core.hpp"

#include "runtime/log.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

// How queue pairs come, fail and go.
namespace sluice::rdma {

namespace {

constexpr std::uint32_t entries_of_queue = 8191;

} // namespace

result<completion_queue*> rail_core::reserve(std::uint32_t entries) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& queue : owned_queues_)
            if (queue->reserve(entries)) return queue.get();
    }
    const auto allowed = static_cast<std::uint32_t>(on_.limits().max_cqe);
    auto made = completion_queue::create(on_, channel_, std::max(entries, std::min(entries_of_queue, allowed)));
    if (!made) return made.error();
    const std::lock_guard lock(mutex_);
    const bool room = (*made)->reserve(entries);
    SLUICE_EXPECTS(room, "rail: a new completion queue without room");
    owned_queues_.push_back(std::move(*made));
    changed_.store(true, std::memory_order_release);
    return owned_queues_.back().get();
}

void rail_core::release(completion_queue& from, std::uint32_t entries) noexcept {
    const std::lock_guard lock(mutex_);
    from.release(entries);
}

void rail_core::take_in(queue_pair_state& q) {
    const std::lock_guard lock(mutex_);
    arrivals_.push_back(&q);
    changed_.store(true, std::memory_order_release);
}

void rail_core::leave(queue_pair_state& q) {
    const std::lock_guard lock(mutex_);
    if (std::erase(arrivals_, &q) > 0) return;
    departures_.push_back(&q);
    changed_.store(true, std::memory_order_release);
}

/// Under the mutex: another thread destroys it now, or has.
bool rail_core::is_leaving(const queue_pair_state& q) const noexcept {
    return std::find(departures_.begin(), departures_.end(), &q) != departures_.end();
}

void rail_core::bury_later(std::unique_ptr<queue_pair_state> q) noexcept {
    const std::lock_guard lock(mutex_);
    q->next_dead = std::exchange(departed_, q.get());
    static_cast<void>(q.release());
    changed_.store(true, std::memory_order_release);
}

void rail_core::take_changes() noexcept {
    const std::lock_guard lock(mutex_);
    changed_.store(false, std::memory_order_relaxed);
    // First those that left: their numbers may have been given to those that came.
    for (queue_pair_state* q : departures_) forget(*q);
    departures_.clear();
    for (queue_pair_state* q : arrivals_) {
        if (q->gave_up()) continue; // its number may be another's already
        pairs_.insert(q->number, *q);
        q->in_map = true;
    }
    arrivals_.clear();
    for (; queues_taken_ < owned_queues_.size(); ++queues_taken_) queues_.push_back(owned_queues_[queues_taken_].get());
    while (departed_ != nullptr) {
        queue_pair_state* const q = departed_;
        departed_ = q->next_dead;
        q->next_dead = std::exchange(dead_, q);
    }
}

queue_pair_state* rail_core::find_new(std::uint32_t number) noexcept {
    take_changes();
    return pairs_.find(number);
}

void rail_core::forget(queue_pair_state& q) noexcept {
    if (std::exchange(q.in_map, false)) pairs_.erase(q.number);
    q.unlink();
    give_back_held(q);
}

void rail_core::take_out(queue_pair_state& q) noexcept {
    if (changed_.load(std::memory_order_acquire)) take_changes();
    q.user = nullptr;
    q.had_user = true;
    forget(q);
}

void rail_core::bury(std::unique_ptr<queue_pair_state> q) noexcept {
    if (!polling_) return;
    q->next_dead = std::exchange(dead_, q.get());
    static_cast<void>(q.release());
}

void rail_core::delete_dead() noexcept {
    while (dead_ != nullptr) {
        const std::unique_ptr<queue_pair_state> q(dead_);
        dead_ = q->next_dead;
    }
}

void rail_core::mark_failed(queue_pair_state& q) noexcept {
    if (std::exchange(q.failed, true)) return;
    q.failed_at = std::chrono::steady_clock::now();
    draining_.push(q);
}

void rail_core::fail(queue_pair_state& q) noexcept {
    if (q.failed) return;
    mark_failed(q);
    int failed = 0;
    {
        const std::lock_guard lock(mutex_);
        if (is_leaving(q)) return;
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        failed = api_.modify_qp(q.qp, &attributes, IBV_QP_STATE);
    }
    if (failed != 0) {
        SLUICE_LOG(warning, "ibv_modify_qp to error on ", on_.name(), ", queue pair ", std::to_string(q.number), ": ",
                   std::strerror(failed < 0 ? -failed : failed), "; destroying it instead");
        give_up(q);
        return;
    }
    start_drain_timer(q.failed_at + receives_flushed_within);
    if (q.sends.posted() == 0 && q.sends.unposted() > 0) wants_attention(q, queue_pair_state::tell_returned);
}

void rail_core::give_up(queue_pair_state& q) noexcept {
    SLUICE_EXPECTS(q.failed, "rail: a queue pair given up that has not failed");
    if (q.gave_up()) return;
    draining_.push(q);
    q.doomed = any_doomed_ = true;
}

/// What came for them is still handed over: with them the device forgets what it did not hand out.
void rail_core::destroy_doomed() noexcept {
    if (!std::exchange(any_doomed_, false)) return;
    reap_receives();
    draining_.for_each([&](draining_link& link) {
        if (auto& q = static_cast<queue_pair_state&>(link); q.doomed) destroy(q);
    });
}

void rail_core::destroy(queue_pair_state& q) noexcept {
    // Its number may be given to another one as soon as it is destroyed.
    if (std::exchange(q.in_map, false)) pairs_.erase(q.number);
    static_cast<draining_link&>(q).unlink();
    {
        const std::lock_guard lock(mutex_);
        if (is_leaving(q)) return;
        api_.destroy_qp(q.id);
        q.qp = nullptr;
    }
    q.sends.take_back();
    q.receives_done = true;
    wants_attention(q, queue_pair_state::tell_returned | queue_pair_state::tell_room);
}

void rail_core::check_draining() noexcept {
    const auto now = std::chrono::steady_clock::now();
    auto next = std::chrono::steady_clock::time_point::max();
    if (changed_.load(std::memory_order_acquire)) take_changes(); // not among what follows: it may unlink any of them
    draining_.for_each([&](draining_link& link) {
        auto& q = static_cast<queue_pair_state&>(link);
        const auto receives_end = q.failed_at + receives_flushed_within;
        const bool forgets = on_.quirks().forgets_reads;
        const auto work_ends = q.failed_at + (forgets ? receives_flushed_within : work_flushed_within);
        if (q.doomed) return;
        if (!q.receives_done && now >= receives_end) wants_attention(q, queue_pair_state::tell_receives_done);
        if (q.sends.posted() == 0 && now >= receives_end) {
            link.unlink();
        } else if (q.sends.posted() > 0 && now >= work_ends) {
            if (!forgets)
                SLUICE_LOG(warning, on_.name(), ": queue pair ", std::to_string(q.number), " in error keeps back ",
                           std::to_string(q.sends.posted()), " work requests; destroying it");
            give_up(q);
        } else {
            next = std::min(next, now < receives_end ? receives_end : work_ends);
        }
    });
    if (!draining_.empty()) start_drain_timer(next);
}

void rail_core::start_drain_timer(std::chrono::steady_clock::time_point at) noexcept {
    if (timer_.linked) {
        if (timer_.deadline <= at) return;
        home().remove_timer(timer_);
    }
    timer_.deadline = at;
    home().add_timer(timer_);
}

} // namespace sluice::rdma
