#include "rdma/rdma_connection.hpp"

#include "rdma/completion_error.hpp"
#include "rdma/device.hpp"
#include "rdma/fork.hpp"
#include "rdma/quirks.hpp"
#include "rdma/rdma_transfer.hpp"

#include "rdma/limits.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace sluice::rdma {

using detail::transfer;
using detail::transfer_kind;

rdma_connection::rdma_connection(executor& home, const connection_options& options, rdma_terms terms,
                                 std::shared_ptr<rail> on, std::vector<rdma_lane_parts> lanes)
    : provider_connection(home, options), terms_(std::move(terms)), rail_(std::move(on)), requester_(*this),
      outbox_(*this, terms_.slots_of_peer, terms_.receive_credits), inbox_(*this, terms_.receive_credits),
      shares_(*this) {
    SLUICE_EXPECTS(!lanes.empty() && lanes.size() <= 16, "rdma: a connection has 1 to 16 lanes");
    SLUICE_EXPECTS(terms_.slots_of_peer >= 1 && terms_.slots_here > slots_kept_back, "rdma: an end without receive slots");
    slots_told_ = terms_.slots_here - slots_kept_back;
    for (timer* t : {&close_timer_, &pulse_, &drain_check_, &nudge_}) t->owner = this;
    close_timer_.fire = &rdma_connection::on_close_timeout;
    pulse_.fire = &rdma_connection::on_pulse;
    drain_check_.fire = &rdma_connection::on_drain_check;
    nudge_.fire = &rdma_connection::on_nudge;
    work_bytes_max_ = std::uint64_t{1} << 20;
    for (auto& parts : lanes) {
        const std::uint8_t port = parts.id->get()->port_num;
        work_bytes_max_ = std::min<std::uint64_t>(work_bytes_max_, rail_->on().max_message_bytes(port));
        lanes_.push_back(std::make_unique<lane>(*this, lane_count(), std::move(parts)));
    }
    if (terms_.connecting_end) {
        lanes_.front()->usable = true;
        for (std::uint32_t i = 0; i < lane_count(); ++i) outbox_.control({.type = frame_type::ready}, i);
        if (rail_->on().quirks().misses_first_data) restart(nudge_, nudge_after_);
    }
    restart(pulse_, this->options().peer_timeout / pulses_per_timeout);
}

// ---- operations ----

result<void> rdma_connection::check(const transfer& t) const {
    if (t.kind == transfer_kind::send || t.kind == transfer_kind::receive) {
        const auto* memory = t.kind == transfer_kind::send ? t.source.registration() : t.target.registration();
        if (memory != nullptr && memory->kind == memory_kind::device)
            return error(errc::unsupported, std::string(to_string(t.kind)) +
                                                ": messages can't go from or to device memory; use read and write");
        return {};
    }
    return shares_.check(t);
}

void rdma_connection::start(transfer& t) noexcept {
    if (state_ != state::open && t.kind != transfer_kind::receive) {
        t.complete(cause());
        return;
    }
    if (auto ok = check(t); !ok) {
        t.complete(std::move(ok).error());
        return;
    }
    switch (t.kind) {
    case transfer_kind::receive: inbox_.start(t); break;
    case transfer_kind::send:
    case transfer_kind::write_with_immediate: outbox_.start(t); break;
    default:
        if (t.remote.size_bytes() == 0) t.complete(); // nothing to move, and no key to be checked by a device
        else requester_.start(t);
        break;
    }
}

void rdma_connection::cancel(transfer& t, error why) noexcept {
    SLUICE_EXPECTS(t.in_flight(), "rdma: canceled what has ended");
    if (state_ >= state::ending && t.kind != transfer_kind::receive) return; // it has failed, and comes back
    switch (t.kind) {
    case transfer_kind::receive: inbox_.cancel(t, std::move(why)); break;
    case transfer_kind::send:
    case transfer_kind::write_with_immediate: outbox_.cancel(t, std::move(why)); break;
    default: requester_.cancel(t, std::move(why)); break;
    }
    something_left();
}

namespace {

struct under_way {
    explicit under_way(std::uint32_t& of) noexcept : count(of) { ++count; }
    ~under_way() { --count; }
    under_way(const under_way&) = delete;
    under_way& operator=(const under_way&) = delete;
    std::uint32_t& count;
};

} // namespace

task<result<detail::provider_connection::shared>> rdma_connection::share(region_view memory, access granted) {
    if (auto ours = claim_rdma(); !ours)
        co_return error(ours.error().code(), "share: " + std::string(ours.error().detail()));
    if (state_ != state::open) co_return cause();
    if (memory.size_bytes() == 0) co_return error(errc::invalid_argument, "share: 0 bytes, at least 1 is needed");
    const auto bits = static_cast<std::uint16_t>(granted);
    if (bits == 0 || bits > 7)
        co_return error(errc::invalid_argument, "share: access bits " + std::to_string(bits) + ", allowed is 1..7");
    const under_way this_one(shares_under_way_);
    auto made = co_await shares_.make(memory, granted);
    co_return made;
}

// ---- what comes from the lanes ----

namespace {

bool is_heard_at_the_end(frame_type type) noexcept {
    return type == frame_type::revoked || type == frame_type::message || type == frame_type::immediate || type == frame_type::fragment;
}

} // namespace

void rdma_connection::on_work_done(lane& on, const work& w, const completion& how) noexcept {
    if (how.ok()) sign_of_life_ = on.answered = on.ever_answered = true;
    auto* t = static_cast<transfer*>(w.owner);
    if (t != nullptr && w.what != work::kind::frame) on.bytes_in_flight -= w.bytes;
    if (w.what == work::kind::frame || (t != nullptr && t->kind == transfer_kind::write_with_immediate)) {
        outbox_.on_work_done(t, w, how);
    } else if (t != nullptr) {
        requester_.on_work_done(*t, w, how);
    } else {
        --probes_;
        if (!how.ok()) on_control_done(w, how);
        else if (answers_first_ && probes_ == 0) tear_down();
    }
}

void rdma_connection::on_control_done(const work& w, const completion& how) noexcept {
    if (!how.ok()) {
        if (how.flushed() || how.refused == ENOTCONN || ended_by_peer(how)) peer_is_gone();
        else if (auto own = device_trouble()) fail(std::move(*own));
        else if (how.refused != 0) fail(refusal(how));
        else fail(error_of(w, how, terms_.peer_address));
        return;
    }
    if (w.what == work::kind::frame && w.header.type == frame_type::goodbye_ack) {
        acknowledged_goodbye_ = true;
        if (goodbye_acknowledged_) tear_down();
    }
}

/// It ends the connection, so the code says that; the text says why.
error rdma_connection::refusal(const completion& how) const {
    return error(errc::closed, "broken by this end: " +
                                   verbs_error(how.refused, "ibv_post_send on " + rail_->on().name()).message());
}

/// Over iWARP a refusal comes as a message that ends the connection, whatever was under way [RFC 5040, 4.8].
bool rdma_connection::ended_by_peer(const completion& how) const noexcept {
    return rail_->on().quirks().iwarp && how.refused == 0 &&
           (how.status == IBV_WC_LOC_QP_OP_ERR || how.status == IBV_WC_REM_OP_ERR || how.status == IBV_WC_GENERAL_ERR);
}

void rdma_connection::work_failed(const transfer& t, const work& w, const completion& how) {
    if (state_ >= state::ending) return;
    if (how.flushed() || how.refused == ENOTCONN) {
        peer_is_gone();
        return;
    }
    if (auto own = device_trouble()) {
        fail(std::move(*own));
        return;
    }
    if (how.refused != 0) {
        fail(refusal(how));
        return;
    }
    error why = error_of(w, how, terms_.peer_address);
    if (how.status == IBV_WC_REM_ACCESS_ERR || ended_by_peer(how)) { // what was shared is not, since the peer revoked it or since it is gone
        fail(error(errc::closed, "the peer " + terms_.peer_address +
                                     " refused access to what it shared: it was revoked just now, or the peer is gone"));
        return;
    }
    if (!is_loss(how)) requester_.set_reason(t, why);
    fail(is_loss(how) ? std::move(why) : error(errc::closed, "broken by an operation that failed: " + why.message()));
}

void rdma_connection::on_room() noexcept {
    if (state_ < state::ending) {
        outbox_.pump();
        requester_.pump();
    }
    check_drained();
}

void rdma_connection::on_frame(lane& on, std::span<const std::byte> bytes) noexcept {
    if (state_ == state::down || deaf_) return;
    sign_of_life_ = true;
    auto f = frame::decode(bytes);
    result<void> ok = f ? outbox_.on_returned(*f) : result<void>(f.error());
    if (ok) {
        if (f->type != frame_type::credit) ok = outbox_.owe_slot();
        // What a peer sent before it was gone counts: its device's word of the end may have overtaken it.
        if (ok && (state_ != state::ending || is_heard_at_the_end(f->type)))
            ok = dispatch(on, *f, bytes.subspan(frame::header_bytes));
    }
    if (!ok) {
        deaf_ = true;
        fail(std::move(ok).error());
        return;
    }
    if (state_ < state::ending) outbox_.pump();
}

result<void> rdma_connection::dispatch(lane& on, const frame& f, std::span<const std::byte> payload) {
    if (on.index() != 0 && f.type != frame_type::ready)
        return error(errc::protocol_error, std::string("frame ") + to_string(f.type) + " on lane " +
                                               std::to_string(on.index()) + ", only `ready` may come there");
    const bool may_be_late = f.type == frame_type::goodbye_ack || f.type == frame_type::credit ||
                             f.type == frame_type::ready; // of another lane
    if (peer_said_goodbye_ && !may_be_late)
        return error(errc::protocol_error, std::string("frame ") + to_string(f.type) + " after the goodbye");
    switch (f.type) {
    case frame_type::ready:
        if (terms_.connecting_end || std::exchange(on.usable, true))
            return error(errc::protocol_error, "frame ready: not expected");
        requester_.pump();
        return {};
    case frame_type::message: return inbox_.on_message(payload);
    case frame_type::offer: return inbox_.on_offer(f);
    case frame_type::immediate: return inbox_.on_immediate(f);
    case frame_type::fragment: return inbox_.on_fragment(payload);
    case frame_type::abandon: return inbox_.on_abandon();
    case frame_type::accept: return outbox_.on_accept(f);
    case frame_type::shared: return shares_.on_shared(f);
    case frame_type::shared_ack: return shares_.on_shared_ack(f);
    case frame_type::revoked: return shares_.on_revoked(f);
    case frame_type::credit: return {};
    case frame_type::goodbye: on_goodbye(); return {};
    case frame_type::goodbye_ack: return on_goodbye_ack();
    }
    return error(errc::protocol_error, "frame of an unknown type");
}

// ---- facts ----

capabilities rdma_connection::capabilities() const noexcept {
    return {.remote_cpu_bypass = true,
            .atomics = terms_.atomics,
            .message_bytes_max = terms_.message_bytes_max,
            .lanes = lane_count(),
            .operations_in_flight = terms_.operations_in_flight};
}

connection_stats rdma_connection::stats() const {
    connection_stats s = provider_connection::stats();
    s.refused_operations = refused_;
    s.copied_bytes = copied_bytes_;
    return s;
}

} // namespace sluice::rdma
