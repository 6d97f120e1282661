#include "rdma/requester.hpp"

#include "rdma/device.hpp"
#include "rdma/quirks.hpp"
#include "rdma/rdma_connection.hpp"
#include "rdma/rdma_transfer.hpp"

#include <algorithm>
#include <string>

namespace sluice::rdma {

using detail::transfer;
using detail::transfer_kind;

namespace {

// Frames must find room too: so much, or half of a queue that is shallow.
constexpr std::uint32_t room_for_frames = 8;

bool has_room(const queue_pair& qp) noexcept {
    const std::uint32_t room = qp.room();
    return room > room_for_frames || room > qp.in_flight(); // more than half of it
}

/// More than soft-iWARP takes for short (MAX_HDR_INLINE of siw.h).
constexpr std::uint64_t short_answer_bytes = 64;
constexpr std::uint64_t page_bytes = 4096;

/// How much of a read may be asked for at once where short answers must not cross a page.
std::uint64_t within_page(std::uint64_t address, std::uint64_t bytes) noexcept {
    const std::uint64_t left = page_bytes - address % page_bytes;
    return bytes <= short_answer_bytes ? std::min(bytes, left) : bytes;
}

bool is_atomic(const transfer& t) noexcept {
    return t.kind == transfer_kind::fetch_add || t.kind == transfer_kind::compare_swap;
}

std::uint64_t size_of(const transfer& t) noexcept { return t.remote.size_bytes(); }

} // namespace

requester::requester(rdma_connection& connection) noexcept
    : connection_(connection), words_(connection.home_rail().on()) {}

void requester::start(transfer& t) noexcept {
    if (is_atomic(t)) {
        if (!connection_.terms().atomics) {
            t.complete(error(errc::unsupported, std::string(to_string(t.kind)) +
                                                    ": the device of this end or of the peer has no atomics "
                                                    "(capabilities().atomics)"));
            return;
        }
        if (auto ready = words_.prepare(); !ready) {
            t.complete(std::move(ready).error());
            return;
        }
    } else {
        // Now, so that memory that the device doesn't know ends this operation before anything of it is in flight.
        const auto* memory = t.kind == transfer_kind::read ? t.target.registration() : t.source.registration();
        auto key = connection_.home_rail().on().local_key(*memory);
        if (!key) {
            t.complete(std::move(key).error());
            return;
        }
        keep_local_key(t, *key);
    }
    set_phase(t, rdma_phase::waits_for_room);
    t.id = 0;
    t.progress_bytes = 0;
    waiting_.push(t);
    pump();
}

/// Not a result, which would be moved: this is the way of every operation.
work requester::next_work(transfer& t) noexcept {
    work w{.owner = &t,
           .remote_address = t.remote.address() + t.progress_bytes,
           .remote_key = static_cast<std::uint32_t>(t.remote.region().key)};
    if (is_atomic(t)) {
        w.what = t.kind == transfer_kind::fetch_add ? work::kind::fetch_add : work::kind::compare_swap;
        w.bytes = sizeof(std::uint64_t);
        w.operand = t.operand;
        w.expected = t.expected;
        w.data = reinterpret_cast<std::byte*>(words_.take());
        w.local_key = words_.local_key();
        return w;
    }
    const bool reads = t.kind == transfer_kind::read;
    const auto* memory = reads ? t.target.registration() : t.source.registration();
    w.what = reads ? work::kind::read : work::kind::write;
    w.data = (reads ? t.target.data() : t.source.data()) + t.progress_bytes;
    w.local_key = local_key_of(t);
    w.inline_allowed = memory->kind != memory_kind::device;
    w.bytes = static_cast<std::uint32_t>(std::min(size_of(t) - t.progress_bytes, connection_.work_bytes_max()));
    if (reads && connection_.home_rail().on().quirks().short_answers_in_one_page)
        w.bytes = static_cast<std::uint32_t>(within_page(w.remote_address, w.bytes));
    return w;
}

lane* requester::next_lane() noexcept {
    const std::uint32_t lanes = connection_.lane_count();
    for (std::uint32_t tried = 0; tried < lanes; ++tried) {
        if (++turn_ >= lanes) turn_ = 0;
        lane& candidate = connection_.lane_at(turn_);
        if (candidate.usable && has_room(candidate.qp()) && candidate.bytes_in_flight < lane_bytes_max)
            return &candidate;
    }
    return nullptr;
}

void requester::pump() noexcept {
    while (!waiting_.empty()) {
        transfer& t = waiting_.front();
        if (!has_work(t) && active_ >= connection_.terms().operations_in_flight) return;
        if (is_atomic(t) && words_.empty()) return;
        lane* on = next_lane();
        if (on == nullptr) return;
        const work w = next_work(t);
        if (!has_work(t)) ++active_;
        work_added(t);
        t.progress_bytes += w.bytes;
        on->bytes_in_flight += w.bytes;
        on->qp().add(w);
        waiting_.remove(t);
        if (t.progress_bytes < size_of(t)) waiting_.push(t); // the others get their turn
        else set_phase(t, rdma_phase::posted);
    }
    connection_.something_left();
}

void requester::on_work_done(transfer& t, const work& w, const completion& how) noexcept {
    work_done(t);
    if (!has_work(t)) --active_;
    if (is_atomic(t)) {
        auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(w.data));
        t.value = *word;
        words_.give_back(word);
    }
    if (!how.ok()) {
        if (phase_of(t) == rdma_phase::waits_for_room) waiting_.remove(t);
        set_phase(t, rdma_phase::leaves);
        connection_.work_failed(t, w, how);
    }
    if (!has_work(t) && phase_of(t) != rdma_phase::waits_for_room) finish(t);
}

void requester::finish(transfer& t) noexcept {
    if (phase_of(t) == rdma_phase::leaves) {
        end_failed(t);
        return;
    }
    if (!reasons_.empty()) [[unlikely]]
        std::erase_if(reasons_, [&t](const auto& r) { return r.first == &t; }); // success wins
    t.complete();
}

void requester::cancel(transfer& t, error why) noexcept {
    if (has_reason(t)) return;
    if (phase_of(t) == rdma_phase::waits_for_room) {
        waiting_.remove(t);
        if (!has_work(t)) {
            t.complete(std::move(why));
            pump();
            return;
        }
        set_phase(t, rdma_phase::leaves); // not all of it was posted: it can't succeed any more
    }
    error cause(errc::closed, std::string("a ") + to_string(t.kind) +
                                  " was given up while the device had it, which ends a connection over RDMA");
    set_reason(t, std::move(why));
    connection_.fail(std::move(cause));
}

void requester::close(const error& why) noexcept {
    net::transfer_list leaving;
    while (!waiting_.empty()) leaving.push(waiting_.pop());
    while (!leaving.empty()) {
        transfer& t = leaving.pop();
        if (has_work(t)) set_phase(t, rdma_phase::leaves);
        else t.complete(why);
    }
}

// ---- reasons ----

void requester::set_reason(const transfer& t, error why) {
    if (!has_reason(t)) reasons_.emplace_back(&t, std::move(why));
}

bool requester::has_reason(const transfer& t) const noexcept {
    return std::any_of(reasons_.begin(), reasons_.end(), [&t](const auto& r) { return r.first == &t; });
}

void requester::end_failed(transfer& t) noexcept {
    const auto found =
        std::find_if(reasons_.begin(), reasons_.end(), [&t](const auto& r) { return r.first == &t; });
    if (found == reasons_.end()) {
        // The peer may have revoked what it aimed at: its word of that can be slower than its device's refusal.
        auto allowed = t.kind == transfer_kind::send ? result<void>() : connection_.check_share(t);
        t.complete(allowed ? connection_.cause() : std::move(allowed).error());
        return;
    }
    error why = std::move(found->second);
    reasons_.erase(found);
    t.complete(std::move(why));
}

} // namespace sluice::rdma
