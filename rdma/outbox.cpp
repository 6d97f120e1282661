#include "rdma/outbox.hpp"

#include "rdma/device.hpp"
#include "rdma/rdma_connection.hpp"
#include "rdma/rdma_transfer.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice::rdma {

using detail::transfer;
using detail::transfer_kind;

outbox::outbox(rdma_connection& connection, std::uint32_t slots, std::uint32_t credits) noexcept
    : connection_(connection), staging_(connection.home_rail().on()), slots_(slots), slots_max_(slots),
      credits_(credits), credits_max_(credits) {}

void outbox::start(transfer& t) noexcept {
    const std::uint64_t largest = connection_.terms().message_bytes_max;
    if (t.kind == transfer_kind::send && t.source.size_bytes() > largest) {
        t.complete(error(errc::message_too_long, "send: a message of " + std::to_string(t.source.size_bytes()) +
                                                     " bytes, the connection allows " + std::to_string(largest) +
                                                     "; raise connection_options.message_bytes_max on both ends"));
        return;
    }
    const auto* memory = t.source.registration();
    if (t.kind == transfer_kind::write_with_immediate && t.source.size_bytes() > 0) {
        if (auto key = connection_.home_rail().on().local_key(*memory); !key) {
            t.complete(std::move(key).error());
            return;
        }
    } else if (needs_staging(t, t.source.size_bytes())) {
        if (auto ready = staging_.prepare(); !ready) {
            t.complete(std::move(ready).error());
            return;
        }
    }
    set_phase(t, rdma_phase::waits_for_credit);
    t.id = 0;
    t.progress_bytes = 0;
    sends_.push(t);
    pump();
}

void outbox::control(const frame& f, std::uint32_t on) {
    // After our goodbye the peer takes nothing else. What it asked for before it heard that, it does not wait for.
    const bool parts = f.type == frame_type::goodbye || f.type == frame_type::goodbye_ack;
    if (shut_ || (connection_.said_goodbye() && !parts)) return;
    control_.push({f, on});
    pump();
}

result<void> outbox::acknowledge(const frame& shared) {
    if (acknowledgements_ == acknowledgements_max)
        return error(errc::protocol_error, "the peer shares regions, and " + std::to_string(acknowledgements_max) +
                                               " acknowledgements wait for its slots");
    if (connection_.said_goodbye()) return {};
    ++acknowledgements_;
    control({.type = frame_type::shared_ack, .immediate = shared.immediate, .key = shared.key});
    return {};
}

result<void> outbox::owe_slot() {
    if (slots_due_ == connection_.slots_told())
        return error(errc::protocol_error, "the peer sent more frames than the " + std::to_string(slots_due_) +
                                               " slots that it was given");
    ++slots_due_;
    return {};
}

bool outbox::needs_staging(const transfer& t, std::size_t bytes) const noexcept {
    if (bytes == 0 || bytes + frame::header_bytes <= connection_.lane_at(0).qp().inline_bytes()) return false;
    return !connection_.home_rail().on().local_key(*t.source.registration());
}

// ---- what is put into the send queue ----

void outbox::pump() noexcept {
    lane& first = connection_.lane_at(0);
    while (!shut_ && first.usable && first.qp().room() > 0)
        if (!emit_one()) break;
    give_back();
    connection_.something_left();
}

/// False: nothing may leave now.
bool outbox::emit_one() {
    if (slots_ == 0) return false;
    if (!control_.empty()) {
        const small_talk talk = control_.front();
        if (connection_.lane_at(talk.on).qp().room() == 0) return false;
        control_.pop();
        if (talk.f.type == frame_type::shared_ack) --acknowledgements_;
        if (talk.f.type == frame_type::ready) connection_.lane_at(talk.on).usable = true;
        emit(talk.f, nullptr, talk.on);
        return true;
    }
    if (!streams_.empty()) return emit_stream();
    if (sends_.empty()) return false;
    transfer& t = sends_.front();
    if (t.kind == transfer_kind::write_with_immediate && t.progress_bytes < t.source.size_bytes())
        return connection_.lane_at(0).bytes_in_flight < lane_bytes_max && emit_written(t);
    return credits_ > 0 && emit_send(t);
}

void outbox::pay(frame& f) noexcept {
    if (f.type != frame_type::credit) --slots_;
    constexpr std::uint32_t most = UINT16_MAX;
    f.slots = static_cast<std::uint16_t>(std::min(slots_due_, most));
    f.credits = static_cast<std::uint16_t>(std::min(credits_due_, most));
    slots_due_ -= f.slots;
    credits_due_ -= f.credits;
}

void outbox::emit(frame f, transfer* owner, std::uint32_t on) {
    pay(f);
    if (owner != nullptr) work_added(*owner);
    connection_.lane_at(on).qp().add({.what = work::kind::frame, .owner = owner, .header = f});
}

/// As emit, with f.payload_bytes of the transfer's memory.
void outbox::emit_payload(frame f, transfer& t, const std::byte* data) {
    pay(f);
    work w{.what = work::kind::frame, .owner = &t, .data = data, .bytes = f.payload_bytes, .header = f};
    if (f.payload_bytes > 0) {
        const auto* memory = t.source.registration();
        w.inline_allowed = memory->kind != memory_kind::device;
        if (needs_staging(t, f.payload_bytes)) {
            w.data = staging_.copy({data, f.payload_bytes});
            w.local_key = staging_.local_key();
            connection_.count_copy(f.payload_bytes);
        } else if (auto key = connection_.home_rail().on().local_key(*memory); key) {
            w.local_key = *key;
        } // else it goes inline
    }
    work_added(t);
    connection_.lane_at(0).qp().add(w);
}

/// A message, the offer of a large one, or the immediate of a write that is in the send queue already.
bool outbox::emit_send(transfer& t) {
    const std::size_t size = t.source.size_bytes();
    if (t.kind == transfer_kind::write_with_immediate) {
        emit({.type = frame_type::immediate, .immediate = t.immediate, .size = size}, &t);
    } else if (size <= slot_payload_bytes) {
        if (needs_staging(t, size) && staging_.empty()) return false;
        emit_payload({.type = frame_type::message, .payload_bytes = static_cast<std::uint16_t>(size)}, t, t.source.data());
    } else {
        emit({.type = frame_type::offer, .size = size}, nullptr);
        --credits_;
        sends_.remove(t);
        offers_.push(&t);
        set_phase(t, rdma_phase::offered);
        return true;
    }
    --credits_;
    sends_.remove(t);
    set_phase(t, rdma_phase::sent);
    return true;
}

/// The next part of the write in write_with_immediate: before its immediate on the same queue pair, so it is there first.
bool outbox::emit_written(transfer& t) {
    auto key = connection_.home_rail().on().local_key(*t.source.registration());
    SLUICE_EXPECTS(key.has_value(), "rdma: memory lost its registration under an operation");
    work w{.what = work::kind::write,
           .owner = &t,
           .data = t.source.data() + t.progress_bytes,
           .local_key = *key,
           .remote_address = t.remote.address() + t.progress_bytes,
           .remote_key = static_cast<std::uint32_t>(t.remote.region().key),
           .inline_allowed = t.source.registration()->kind != memory_kind::device};
    w.bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(t.source.size_bytes() - t.progress_bytes, connection_.work_bytes_max()));
    t.progress_bytes += w.bytes;
    connection_.lane_at(0).bytes_in_flight += w.bytes;
    work_added(t);
    connection_.lane_at(0).qp().add(w);
    return true;
}

/// The next fragment of the message that is being sent, or word that no more of it comes.
bool outbox::emit_stream() {
    transfer* t = streams_.front();
    if (t == nullptr) {
        streams_.pop();
        emit({.type = frame_type::abandon}, nullptr);
        return true;
    }
    const std::size_t left = t->source.size_bytes() - t->progress_bytes;
    const std::size_t bytes = std::min(left, slot_payload_bytes);
    if (needs_staging(*t, bytes) && staging_.empty()) return false;
    emit_payload({.type = frame_type::fragment, .payload_bytes = static_cast<std::uint16_t>(bytes)}, *t,
                 t->source.data() + t->progress_bytes);
    t->progress_bytes += bytes;
    if (bytes < left) return true;
    streams_.pop();
    set_phase(*t, rdma_phase::sent);
    return true;
}

/// By a frame of its own when the peer may be waiting for it: when half are due, rounded up. So the peer, which has not
/// seen them, can't make more than two due by its slots and two by its credits, and slots_kept_back suffice.
void outbox::give_back() noexcept {
    lane& first = connection_.lane_at(0);
    static_assert(slots_kept_back == 2 + 2);
    const bool due = slots_due_ >= (connection_.slots_told() + 1) / 2 || credits_due_ >= (credits_max_ + 1) / 2;
    if (due && !shut_ && first.usable && first.qp().room() > 0) emit({.type = frame_type::credit}, nullptr);
}

// ---- what comes back ----

void outbox::on_work_done(transfer* t, const work& w, const completion& how) noexcept {
    staging_.give_back(w.data);
    if (t == nullptr) {
        connection_.on_control_done(w, how);
        return;
    }
    work_done(*t);
    if (!how.ok()) {
        if (phase_of(*t) == rdma_phase::waits_for_credit) sends_.remove(*t);
        if (phase_of(*t) == rdma_phase::streaming)
            for (std::size_t p = streams_.head(); p < streams_.tail(); ++p)
                if (streams_.at(p) == t) streams_.at(p) = nullptr;
        set_phase(*t, rdma_phase::leaves);
        connection_.work_failed(*t, w, how);
    }
    if (!has_work(*t)) end(*t);
}

/// Nothing of it is in flight: perhaps it has ended.
void outbox::end(transfer& t) noexcept {
    if (phase_of(t) == rdma_phase::sent) t.complete();
    else if (phase_of(t) == rdma_phase::leaves) connection_.one_sided().end_failed(t);
}

result<void> outbox::on_returned(const frame& f) {
    if (f.slots > slots_max_ - slots_ || f.credits > credits_max_ - credits_)
        return error(errc::protocol_error, "the peer gave back " + std::to_string(f.slots) + " slots and " +
                                               std::to_string(f.credits) + " credits, " +
                                               std::to_string(slots_max_ - slots_) + " and " +
                                               std::to_string(credits_max_ - credits_) + " are out");
    slots_ += f.slots;
    credits_ += f.credits;
    return {};
}

result<void> outbox::on_accept(const frame& f) {
    if (offers_.empty()) return error(errc::protocol_error, "frame accept: nothing was offered");
    transfer* t = offers_.front();
    if (t != nullptr && f.size != 0 && f.size != t->source.size_bytes()) // it stays, so that it ends with the connection
        return error(errc::protocol_error, "frame accept: " + std::to_string(f.size) + " bytes, " +
                                               std::to_string(t->source.size_bytes()) + " were offered");
    offers_.pop();
    if (f.size == 0) { // nobody wants it: gone, as far as this end is concerned
        if (t != nullptr) t->complete();
        return {};
    }
    if (connection_.said_goodbye()) {
        if (t != nullptr) t->complete(connection_.cause());
        return {};
    }
    if (t != nullptr) set_phase(*t, rdma_phase::streaming);
    streams_.push(t);
    return {};
}

// ---- ending ----

void outbox::cancel(transfer& t, error why) noexcept {
    requester& one_sided = connection_.one_sided();
    if (one_sided.has_reason(t)) return;
    const auto forget_in = [&t](net::ring_queue<transfer*>& queue) {
        for (std::size_t p = queue.head(); p < queue.tail(); ++p)
            if (queue.at(p) == &t) queue.at(p) = nullptr;
    };
    switch (phase_of(t)) {
    case rdma_phase::waits_for_credit:
        if (has_work(t)) break;
        sends_.remove(t);
        t.complete(std::move(why));
        pump();
        return;
    case rdma_phase::offered:
        forget_in(offers_);
        t.complete(std::move(why));
        return;
    case rdma_phase::streaming:
        forget_in(streams_);
        if (has_work(t)) {
            set_phase(t, rdma_phase::leaves);
            one_sided.set_reason(t, std::move(why));
        } else {
            t.complete(std::move(why));
        }
        pump();
        return;
    case rdma_phase::sent:
        if (t.kind == transfer_kind::send) return; // on its way, into a slot that is there: it ends soon
        break;
    default: return;
    }
    one_sided.set_reason(t, std::move(why));
    if (phase_of(t) == rdma_phase::waits_for_credit) {
        sends_.remove(t);
        set_phase(t, rdma_phase::leaves);
    }
    connection_.fail(error(errc::closed, "a write_with_immediate was given up while the device had it, which ends a "
                                         "connection over RDMA"));
}

void outbox::close(const error& why) noexcept {
    const auto leave = [&](transfer* t) {
        if (t == nullptr) return;
        if (has_work(*t)) set_phase(*t, rdma_phase::leaves);
        else t->complete(why);
    };
    while (!sends_.empty()) leave(&sends_.pop());
    for (auto* queue : {&offers_, &streams_})
        for (; !queue->empty(); queue->pop()) leave(queue->front());
}

void outbox::shut() noexcept {
    shut_ = true;
    while (!control_.empty()) control_.pop();
}

} // namespace sluice::rdma
