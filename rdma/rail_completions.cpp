#include "rdma/no_sigpipe.hpp"
#include "rdma/quirks.hpp"
#include "rdma/rail_core.hpp"
#include "rdma/terms.hpp"

#include "runtime/log.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

// What a rail does in each turn of its executor: posting, and handing completions out.
namespace sluice::rdma {

namespace {

constexpr std::size_t polled_at_once = 32;
constexpr int polls_in_a_row = 8; // of a queue that stays full, before others get their turn
constexpr std::uint32_t held_max = slots_for_frames + slots_kept_back;

constexpr completion success{.status = IBV_WC_SUCCESS};
constexpr completion flushed{.status = IBV_WC_WR_FLUSH_ERR};

completion take_cause(queue_pair_state& q) noexcept {
    q.cause_on_flush = false;
    return std::exchange(q.cause, flushed);
}

} // namespace

bool rail_core::poll() noexcept {
    SLUICE_EXPECTS(!polling_, "rail: polled from within one of its own callbacks");
    polling_ = true;
    if (changed_.load(std::memory_order_acquire)) [[unlikely]]
        take_changes();
    post_all();
    bool found = false;
    for (std::size_t i = 0; i < queues_.size(); ++i) found = reap(*queues_[i]) || found;
    destroy_doomed();
    found = tell_all() || found;
    receives_->post();
    post_all();
    polling_ = false;
    if (dead_ != nullptr) [[unlikely]]
        delete_dead();
    if (orphaned_) [[unlikely]] {
        delete this;
        return found;
    }
    // Slots that could not be posted must not wait for a completion: without them there may be none.
    return found || !to_tell_.empty() || any_doomed_ || (receives_->behind() && !broken());
}

void rail_core::arm() noexcept {
    if (changed_.load(std::memory_order_acquire)) [[unlikely]]
        take_changes();
    for (completion_queue* queue : queues_) queue->arm();
    if (!std::exchange(channel_watched_, true)) sleeps_.nudge();
}

bool rail_core::reap(completion_queue& from) noexcept {
    if (from.broken()) [[unlikely]] {
        queue_broke(from);
        return true;
    }
    std::array<ibv_wc, polled_at_once> found; // filled as far as it is used
    for (int i = 0; i < polls_in_a_row; ++i) {
        const std::uint32_t count = from.poll(found);
        if (count == 0) return i > 0 || from.broken(); // a broken one is seen to in the next poll
        stats_.completions += count;
        for (std::uint32_t n = 0; n < count; ++n) {
            const ibv_wc& wc = found[n];
            if ((wc.wr_id & receive_queue::wr_id_bit) != 0) on_received(wc);
            else on_sent(wc);
        }
        if (count < found.size()) return true;
    }
    return true;
}

/// All that came, however much: before a queue pair goes, or counts as drained. What came is at most the slots.
void rail_core::reap_receives() noexcept {
    while (!first_->broken() && reap(*first_)) {}
}

/// What reports to it can't be waited for any more.
void rail_core::queue_broke(completion_queue& which) noexcept {
    std::erase(queues_, &which);
    const auto concerned = [&](const queue_pair_state& q) { return &which == first_ || q.send_cq == &which; };
    pairs_.for_each([&](queue_pair_state& q) {
        if (!concerned(q)) return;
        if (!device_gone_) add_event(q, IBV_EVENT_CQ_ERR);
        mark_failed(q);
    });
    draining_.for_each([&](draining_link& link) {
        auto& q = static_cast<queue_pair_state&>(link);
        if (concerned(q)) give_up(q);
    });
}

void rail_core::on_sent(const ibv_wc& wc) noexcept {
    queue_pair_state* const q = find(wc.qp_num);
    const std::uint32_t count = q == nullptr ? 0 : q->sends.covered_by(wc.wr_id);
    if (count == 0) [[unlikely]]
        return; // of one that is gone, or said before
    if (wc.status == IBV_WC_SUCCESS) [[likely]] {
        for (std::uint32_t i = 0; i < count; ++i) retire(*q, success);
    } else {
        on_send_failed(*q, count, wc);
    }
    unsigned what = queue_pair_state::tell_room;
    if (q->failed && q->sends.posted() == 0 && q->sends.unposted() > 0) what |= queue_pair_state::tell_returned;
    wants_attention(*q, what);
}

void rail_core::on_send_failed(queue_pair_state& q, std::uint32_t count, const ibv_wc& wc) noexcept {
    const completion how{.status = wc.status, .vendor_error = wc.vendor_err};
    fail(q); // it is in error already, but for us to know
    // What was passed over ended before this did, so well if this is what failed. But among the flushed it may have
    // been flushed as well, with a device that says so only where it was asked. And where only answers confirm nothing
    // is known of what was passed over: the first of it bears the reason, which may be its own.
    const bool all_failed = how.flushed() || q.sends.confirms_by_reading();
    for (std::uint32_t i = 0; i < count; ++i) {
        const bool bears_it = all_failed ? i == 0 : i + 1 == count;
        if (how.flushed() && q.cause_on_flush) retire(q, take_cause(q));
        else retire(q, bears_it ? how : all_failed ? flushed : success);
    }
}

void rail_core::retire(queue_pair_state& q, const completion& how) noexcept {
    const work w = q.sends.pop(); // out of the ring first: the user may add
    if (q.user != nullptr) q.user->on_work_done(w, how);
}

void rail_core::on_received(const ibv_wc& wc) noexcept {
    const auto slot = static_cast<std::uint32_t>(wc.wr_id);
    queue_pair_state* const q = find(wc.qp_num);
    if (q != nullptr && wc.status == IBV_WC_SUCCESS) [[likely]] {
        if (q->user != nullptr && q->held.empty()) [[likely]] {
            q->user->on_frame(receives_->bytes(slot, wc.byte_len));
        } else if (q->user != nullptr || !q->had_user) {
            if (q->held_count < held_max) {
                ++q->held_count;
                receives_->hold(q->held, slot, wc.byte_len);
                return;
            }
            // The slots are there for all: what takes more than one connection's while it has no user is no peer.
            SLUICE_LOG(warning, on_.name(), ": queue pair ", std::to_string(q->number), " sends more than ",
                       std::to_string(held_max), " frames before it is connected");
            add_event(*q, broken_frames);
            fail(*q);
        }
    } else if (q != nullptr && wc.status == IBV_WC_LOC_LEN_ERR) {
        add_event(*q, broken_frames);
        fail(*q);
    } else if (q != nullptr && wc.status != IBV_WC_WR_FLUSH_ERR) {
        SLUICE_LOG(warning, on_.name(), ": a receive of queue pair ", std::to_string(q->number), " failed with status ",
                   std::to_string(static_cast<int>(wc.status)));
        add_event(*q, IBV_EVENT_QP_FATAL);
        fail(*q);
    }
    receives_->give_back(slot);
}

bool rail_core::tell_all() noexcept {
    if (to_tell_.empty()) return false;
    link_list<attention_link> now;
    now.take(to_tell_); // what comes up meanwhile is for the next time, so that this ends
    while (!now.empty()) tell(static_cast<queue_pair_state&>(now.pop()));
    return true;
}

void rail_core::tell(queue_pair_state& q) noexcept {
    const unsigned what = std::exchange(q.to_tell, std::uint8_t{0});
    bool room = (what & (queue_pair_state::tell_room | queue_pair_state::tell_receives_done)) != 0;
    if ((what & queue_pair_state::tell_receives_done) != 0 && !q.receives_done) {
        reap_receives();
        q.receives_done = true;
    }
    if ((what & queue_pair_state::tell_frames) != 0) tell_frames(q);
    if ((what & queue_pair_state::tell_events) != 0) tell_events(q);
    if ((what & queue_pair_state::tell_returned) != 0) room = tell_returned(q) || room;
    if (room && q.user != nullptr) q.user->on_room();
}

void rail_core::tell_frames(queue_pair_state& q) noexcept {
    while (!q.held.empty() && q.user != nullptr) {
        q.user->on_frame(receives_->front(q.held));
        if (q.held.empty()) return; // it was destroyed meanwhile
        give_back_first_held(q);
    }
    if (q.user == nullptr && q.had_user) give_back_held(q);
}

void rail_core::tell_events(queue_pair_state& q) noexcept {
    while (q.events != 0 && (q.user != nullptr || q.had_user)) {
        const int bit = std::countr_zero(q.events);
        q.events &= q.events - 1;
        if (q.user != nullptr) q.user->on_queue_pair_event(static_cast<ibv_event_type>(bit));
    }
}

/// What was never posted, or was given up; the first with the reason.
bool rail_core::tell_returned(queue_pair_state& q) noexcept {
    if (!q.failed || q.sends.posted() > 0) return false; // older work is to come back first
    const std::uint32_t count = q.sends.unposted();
    for (std::uint32_t i = 0; i < count; ++i) retire(q, take_cause(q));
    return count > 0;
}

void rail_core::give_back_held(queue_pair_state& q) noexcept {
    while (!q.held.empty()) give_back_first_held(q);
}

void rail_core::give_back_first_held(queue_pair_state& q) noexcept {
    --q.held_count;
    receives_->give_back(receives_->take(q.held));
}

void rail_core::post_all() noexcept {
    while (!to_post_.empty()) post(static_cast<queue_pair_state&>(to_post_.pop()));
}

void rail_core::post(queue_pair_state& q) noexcept {
    const no_sigpipe quiet(on_.quirks().raises_sigpipe && q.sends.unposted() > 0 && !q.failed);
    while (q.sends.unposted() > 0 && !q.failed) {
        const std::uint32_t count = q.sends.fill(chain_);
        ibv_send_wr* bad = nullptr;
        const int failed = api_.post_send(q.qp, chain_.requests.data(), &bad);
        ++stats_.posts;
        if (failed != 0) [[unlikely]] {
            post_failed(q, count, failed < 0 ? -failed : failed, bad);
            return;
        }
        q.sends.mark_posted(count);
        stats_.work_posted += count;
    }
}

void rail_core::post_failed(queue_pair_state& q, std::uint32_t count, int reason, const ibv_send_wr* bad) noexcept {
    const ibv_send_wr* const first = chain_.requests.data();
    // With no word on where it stopped the device may have all of it: then nothing is given back before the drain.
    const bool known = bad >= first && bad < first + count;
    const std::uint32_t taken = known ? static_cast<std::uint32_t>(bad - first) : count;
    SLUICE_LOG(warning, "ibv_post_send on ", on_.name(), ", queue pair ", std::to_string(q.number), ": ",
               std::strerror(reason), ", after ", std::to_string(taken), " of ", std::to_string(count),
               " work requests");
    q.sends.mark_posted(taken);
    stats_.work_posted += taken;
    q.cause = {IBV_WC_GENERAL_ERR, 0, reason};
    q.cause_on_flush = !known;
    fail(q);
    if (q.doomed || q.sends.posted() == 0) return;
    // The last that it took may be one that asks for no completion, and have ended before the queue pair was in error:
    // then nothing would ever tell. What is posted in error is flushed at once [IB 10.3.1]; room for it is there, for
    // what was refused has not taken it.
    ibv_send_wr marker = q.sends.marker();
    ibv_send_wr* refused = nullptr;
    if (const int failed = api_.post_send(q.qp, &marker, &refused); failed != 0)
        SLUICE_LOG(debug, on_.name(), ": no marker on queue pair ", std::to_string(q.number),
                   "; waiting for the time limit");
}

} // namespace sluice::rdma
