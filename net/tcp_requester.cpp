#include "net/tcp_requester.hpp"

#include "net/tcp_connection.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace sluice::net {

using detail::transfer;
using detail::transfer_kind;

namespace {

// From this size on an operation may take any lane; smaller ones stay together on the first.
constexpr std::uint64_t any_lane_bytes = 64 * 1024;
// From this size on it is spread over all of them.
constexpr std::uint64_t spread_bytes = 1 << 20;
constexpr std::uint64_t page_bytes = 4096;

std::uint64_t size_of(const transfer& t) noexcept {
    return t.kind == transfer_kind::send ? t.source.size_bytes() : t.remote.size_bytes();
}

tcp_request& first_share(const transfer& t) noexcept { return *reinterpret_cast<tcp_request*>(t.id); }

error unknown_id(const frame& f) {
    return {make_error_code(errc::protocol_error),
            std::string("frame ") + to_string(f.type) + " names operation " + std::to_string(f.id) + ", which is not under way"};
}

} // namespace

tcp_requester::spread tcp_requester::spread_of(const transfer& t) const noexcept {
    const std::uint32_t lanes = connection_.lane_count();
    const bool movable = t.kind == transfer_kind::read || t.kind == transfer_kind::write;
    if (lanes == 1 || !movable || size_of(t) < any_lane_bytes) return {0, 1};
    if (size_of(t) <= spread_bytes) return {turn_ % lanes, 1};
    return {0, static_cast<std::uint32_t>(std::min<std::uint64_t>(lanes, size_of(t) / (spread_bytes / 2)))};
}

bool tcp_requester::admissible(const transfer& t, spread s) noexcept {
    for (std::uint32_t i = 0; i < s.lanes; ++i) {
        const request_table& table = connection_.lane(s.first_lane + i).requests();
        if (table.full()) return false;
        if (t.kind != transfer_kind::send && table.one_sided() >= connection_.terms().operations_in_flight) return false;
    }
    return true;
}

bool tcp_requester::has_room_for(transfer& t) noexcept { return admissible(t, spread_of(t)); }

void tcp_requester::start(transfer& t) noexcept {
    if (waiting_.empty() && has_room_for(t)) {
        launch(t);
        return;
    }
    set_phase(t, tcp_phase::waits_for_room);
    waiting_.push(t);
}

void tcp_requester::pump() noexcept {
    while (!waiting_.empty() && has_room_for(waiting_.front())) launch(waiting_.pop());
    connection_.messages().pump();
}

void tcp_requester::launch(transfer& t) noexcept {
    const spread s = spread_of(t);
    if (s.lanes == 1 && size_of(t) >= any_lane_bytes) ++turn_;
    const std::uint64_t total = size_of(t);
    const std::uint64_t share = s.lanes == 1 ? total : (total / s.lanes + page_bytes) / page_bytes * page_bytes;
    set_phase(t, tcp_phase::started);
    t.progress_bytes = 0; // here: how many shares have not ended
    tcp_request* last = nullptr;
    std::uint64_t offset = 0;
    for (std::uint32_t i = 0; i < s.lanes && (i == 0 || offset < total); ++i) {
        tcp_lane& lane = connection_.lane(s.first_lane + i);
        tcp_request& r = lane.requests().acquire(*this, lane, t.kind);
        r.owner = &t;
        r.offset = offset;
        r.size = std::min(share, total - offset);
        offset += r.size;
        if (last == nullptr) {
            t.id = reinterpret_cast<std::uint64_t>(&r);
        } else {
            r.sibling = last->sibling;
            last->sibling = &r;
        }
        last = &r;
        ++t.progress_bytes;
        r.leaving = true;
        ++leaving_;
        lane.send(r);
        if (t.kind == transfer_kind::send && r.size <= tcp_request::copied_bytes_max) {
            r.copy_source();
            connection_.count_copy(r.size);
            finish_share(r);
        }
    }
    SLUICE_EXPECTS(offset == total, "tcp: the shares don't add up to the operation");
}

void tcp_requester::cancel(transfer& t, error why) noexcept {
    if (phase_of(t) == tcp_phase::waits_for_room) {
        waiting_.remove(t);
        t.complete(std::move(why));
        return;
    }
    give_up(first_share(t), why); // the others follow when it ends
}

void tcp_requester::give_up(tcp_request& r, const error& why) noexcept {
    if (r.canceled || r.owner == nullptr) return;
    r.canceled = true;
    if (!r.answered && !r.why.code()) r.why = why; // success wins
    if (r.in_gather > 0) r.lane->interrupt_send();
    if (r.receiving) r.lane->interrupt_receive(r);
    if (r.started && !r.answered && (r.kind == transfer_kind::read || !r.committed)) r.lane->send(r);
    settle(r);
}

/// Takes a share out of its ring; the last one completes the transfer with the first failure of any.
void tcp_requester::finish_share(tcp_request& r) noexcept {
    transfer& t = *r.owner;
    r.owner = nullptr;
    if (--t.progress_bytes == 0) {
        t.complete(r.why);
        return;
    }
    tcp_request* before = r.sibling;
    while (before->sibling != &r) before = before->sibling;
    before->sibling = r.sibling;
    r.sibling = &r;
    t.id = reinterpret_cast<std::uint64_t>(before);
    if (!r.why.code()) return;
    std::array<tcp_request*, lanes_max> rest{};
    std::size_t count = 0;
    for (tcp_request* s = before; count == 0 || s != before; s = s->sibling) rest[count++] = s;
    const error why = r.why;
    for (std::size_t i = 0; i < count; ++i)
        if (!rest[i]->why.code()) rest[i]->why = why;
    for (std::size_t i = 0; i < count; ++i) give_up(*rest[i], why);
}

void tcp_requester::settle(tcp_request& r) noexcept {
    // A small message has no answer, and a large one is done for its sender when its bytes have left.
    const bool all_sent = r.committed && r.in_gather == 0;
    if (r.kind == transfer_kind::send && r.size <= eager_bytes_max && all_sent) r.answered = true;
    if (r.leaving && (all_sent || r.over())) {
        r.leaving = false;
        --leaving_;
        connection_.something_left();
    }
    if (!r.memory_free()) return;
    const bool done = r.answered || r.canceled || (r.kind == transfer_kind::send && all_sent);
    if (r.owner != nullptr && done) finish_share(r);
    if (r.owner != nullptr || !r.over() || r.queued) return;
    const bool spent = r.kind == transfer_kind::send || r.kind == transfer_kind::write_with_immediate;
    if (spent && !r.started) connection_.messages().take_back_credit();
    r.lane->requests().release(r);
    pump();
}

result<tcp_request*> tcp_requester::open_reply(tcp_lane& lane, const frame& f) {
    tcp_request* r = lane.requests().find(f.id);
    if (r == nullptr || r->kind != transfer_kind::read || !r->started || r->answered) return unknown_id(f);
    if (f.address != r->received_bytes || f.payload_bytes > r->size - r->received_bytes)
        return error(errc::protocol_error, "frame reply: " + std::to_string(f.payload_bytes) + " bytes from " +
                                               std::to_string(f.address) + ", expected at most " +
                                               std::to_string(r->size - r->received_bytes) + " from " +
                                               std::to_string(r->received_bytes));
    return r;
}

error tcp_requester::refused(const tcp_request& r, frame_status status) const {
    const auto with = [&](errc code, const char* why) {
        std::string what = detail::to_string(r.kind);
        if (r.owner != nullptr && r.one_sided())
            what += " of " + std::to_string(r.size) + " bytes at remote address " +
                    std::to_string(r.owner->remote.address() + r.offset);
        return error(code, what + ": the peer refused it, " + why);
    };
    switch (status) {
    case frame_status::access_denied:
        return with(errc::access_denied, "its key is unknown, revoked or does not grant this access");
    case frame_status::out_of_range: return with(errc::out_of_range, "it leaves the shared region");
    case frame_status::invalid: return with(errc::invalid_argument, "the word is not aligned to 8 bytes");
    case frame_status::ok:
    case frame_status::canceled: break;
    }
    return with(errc::canceled, "it was given up");
}

result<void> tcp_requester::on_end(tcp_lane& lane, const frame& f) {
    tcp_request* r = lane.requests().find(f.id);
    if (r == nullptr || !r->started || r->answered) return unknown_id(f);
    const bool ok = f.status == frame_status::ok;
    if (ok && r->kind == transfer_kind::read && !r->canceled && r->received_bytes != r->size)
        return error(errc::protocol_error, "frame end: a read is said to be done after " +
                                               std::to_string(r->received_bytes) + " of " + std::to_string(r->size) + " bytes");
    if (ok && !r->committed && r->kind != transfer_kind::send)
        return error(errc::protocol_error, "frame end: a write is said to be done before all of it was sent");
    r->answered = true;
    r->committed = true;
    if (!ok && !r->why.code()) r->why = refused(*r, f.status);
    if (ok && r->owner != nullptr && !r->canceled) r->owner->value = f.operand;
    settle(*r);
    return {};
}

result<void> tcp_requester::on_accept(tcp_lane& lane, const frame& f) {
    tcp_request* r = lane.requests().find(f.id);
    if (r == nullptr || r->kind != transfer_kind::send || !r->started || r->accepted || r->answered) return unknown_id(f);
    if (r->size <= eager_bytes_max) return unknown_id(f);
    r->accepted = true;
    if (!r->canceled) lane.send_bulk(*r);
    return {};
}

void tcp_requester::cancel_all(const error& why) noexcept {
    while (!waiting_.empty()) waiting_.pop().complete(why);
    for (std::uint32_t i = 0; i < connection_.lane_count(); ++i)
        connection_.lane(i).requests().for_each_active([&](tcp_request& r) { give_up(r, why); });
}

void tcp_requester::abandon_all(const error& why) noexcept {
    while (!waiting_.empty()) waiting_.pop().complete(why);
    for (std::uint32_t i = 0; i < connection_.lane_count(); ++i)
        connection_.lane(i).requests().for_each_active([&](tcp_request& r) {
            if (r.owner == nullptr) return;
            transfer& t = *std::exchange(r.owner, nullptr);
            if (--t.progress_bytes == 0) t.complete(r.why.code() ? r.why : why);
        });
}

} // namespace sluice::net
