#include "net/tcp_messages.hpp"

#include "net/tcp_connection.hpp"
#include "net/tcp_gather.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace sluice::net {

using detail::transfer;
using detail::transfer_kind;

tcp_messages::tcp_messages(tcp_connection& connection, std::uint32_t credits) noexcept
    : connection_(connection), credits_(credits), credits_max_(credits) {}

// ---- sending ----

void tcp_messages::start_send(transfer& t) noexcept {
    const std::uint64_t largest = connection_.terms().message_bytes_max;
    if (t.kind == transfer_kind::send && t.source.size_bytes() > largest) {
        t.complete(error(errc::message_too_long, "send: a message of " + std::to_string(t.source.size_bytes()) +
                                                     " bytes, the connection allows " + std::to_string(largest) +
                                                     "; raise connection_options.message_bytes_max on both ends"));
        return;
    }
    set_phase(t, tcp_phase::waits_for_credit);
    sends_.push(t);
    pump();
}

void tcp_messages::pump() noexcept {
    while (!sends_.empty() && credits_ > 0 && connection_.requester().has_room_for(sends_.front())) {
        --credits_;
        connection_.requester().launch(sends_.pop());
    }
}

void tcp_messages::take_back_credit() noexcept {
    SLUICE_EXPECTS(credits_ < credits_max_, "tcp: a credit taken back that was not spent");
    ++credits_;
}

result<void> tcp_messages::on_credit(const frame& f) {
    if (f.immediate > credits_max_ - credits_)
        return error(errc::protocol_error, "frame credit: " + std::to_string(f.immediate) + " credits given back, " +
                                               std::to_string(credits_max_ - credits_) + " are out");
    credits_ += f.immediate;
    pump();
    connection_.something_left();
    return {};
}

// ---- receiving ----

void tcp_messages::start_receive(transfer& t) noexcept {
    set_phase(t, tcp_phase::posted);
    receives_.push(t);
    deliver();
}

result<std::size_t> tcp_messages::admit(const entry& e) {
    if (held_ == credits_max_)
        return error(errc::protocol_error, "the peer sent more messages than the " + std::to_string(credits_max_) +
                                               " that it has credits for");
    ++held_;
    const std::size_t position = inbox_.tail();
    inbox_.push(e);
    return position;
}

result<void> tcp_messages::on_message(const frame& f, std::span<const std::byte> payload) {
    if (f.size != payload.size())
        return error(errc::protocol_error, "frame message: " + std::to_string(payload.size()) + " bytes of " + std::to_string(f.size));
    const entry e{.what = entry::kind::message, .ready = true, .dropped = false, .immediate = 0, .size = payload.size(), .offer = nullptr};
    const bool straight = inbox_.empty() && !receives_.empty();
    auto position = admit(e);
    if (!position) return position.error();
    connection_.count_copy(payload.size());
    if (!straight) {
        bytes_.push(payload);
        deliver();
        return {};
    }
    inbox_.pop();
    transfer& receive = receives_.pop();
    if (payload.size() > receive.target.size_bytes()) {
        too_long(receive, payload.size());
    } else {
        if (!payload.empty()) std::memcpy(receive.target.data(), payload.data(), payload.size());
        finish_receive(receive, payload.size());
    }
    return_credit();
    return {};
}

result<void> tcp_messages::on_offer(tcp_serving& s) {
    auto position = admit({.what = entry::kind::offer, .ready = true, .dropped = false, .immediate = 0, .size = s.size, .offer = &s});
    if (!position) return position.error();
    s.inbox_position = *position;
    deliver();
    return {};
}

result<std::size_t> tcp_messages::reserve_immediate() { return admit({.what = entry::kind::immediate, .ready = false, .dropped = false, .immediate = 0, .size = 0, .offer = nullptr}); }

void tcp_messages::end_immediate(std::size_t position, std::uint32_t immediate, std::uint64_t size, bool ok) noexcept {
    entry& e = inbox_.at(position);
    e.ready = true;
    e.dropped = !ok;
    e.immediate = immediate;
    e.size = size;
    deliver();
}

/// Matches messages and receives, both in order.
void tcp_messages::deliver() noexcept {
    while (!inbox_.empty() && inbox_.front().ready) {
        const entry e = inbox_.front();
        if (!e.dropped) {
            if (receives_.empty()) break;
            deliver_to(receives_.pop(), e);
        }
        inbox_.pop();
        return_credit();
    }
    if (!closed_ || (!inbox_.empty() && inbox_.front().ready)) return;
    while (!receives_.empty()) receives_.pop().complete(connection_.cause());
}

void tcp_messages::deliver_to(transfer& receive, const entry& e) noexcept {
    const bool fits = e.what == entry::kind::immediate || e.size <= receive.target.size_bytes();
    if (e.what == entry::kind::message) bytes_.pop(fits ? receive.target.data() : nullptr, e.size);
    if (!fits) {
        if (e.what == entry::kind::offer) { // gone: the sender is told that it is through with it
            e.offer->finished = true;
            e.offer->lane->send(*e.offer);
        }
        too_long(receive, e.size);
        return;
    }
    switch (e.what) {
    case entry::kind::message: finish_receive(receive, e.size); break;
    case entry::kind::immediate:
        receive.has_immediate = true;
        receive.immediate = e.immediate;
        finish_receive(receive, e.size);
        break;
    case entry::kind::offer:
        set_phase(receive, tcp_phase::matched);
        receive.id = reinterpret_cast<std::uint64_t>(e.offer);
        e.offer->receive = &receive;
        e.offer->accepted = true;
        e.offer->lane->send(*e.offer);
        break;
    }
}

void tcp_messages::finish_receive(transfer& receive, std::uint64_t size) noexcept {
    receive.received_bytes = size;
    receive.complete();
}

void tcp_messages::too_long(transfer& receive, std::uint64_t size) noexcept {
    receive.complete(error(errc::message_too_long, "receive: a message of " + std::to_string(size) +
                                                       " bytes, the buffer has " +
                                                       std::to_string(receive.target.size_bytes())));
}

void tcp_messages::return_credit() noexcept {
    ++returnable_;
    if (returnable_ >= std::max(1U, credits_max_ / 4)) connection_.lane(0).send(*this);
}

bool tcp_messages::emit(gather& out) noexcept {
    out.add({.type = frame_type::credit, .immediate = returnable_});
    held_ -= returnable_;
    returnable_ = 0;
    return false;
}

// ---- large messages ----

void tcp_messages::offer_ended(tcp_serving& s) noexcept {
    s.finished = true;
    if (!s.accepted) {
        inbox_.at(s.inbox_position).dropped = true;
        deliver();
    } else if (transfer* receive = std::exchange(s.receive, nullptr); receive != nullptr) {
        if (s.status == frame_status::ok && !s.receive_canceled) {
            finish_receive(*receive, s.size);
        } else if (s.receive_canceled) {
            receive->complete(s.why);
        } else { // the sender gave it up: whoever waited for it gets the next one
            set_phase(*receive, tcp_phase::posted);
            receives_.push_front(*receive);
            deliver();
        }
    }
    s.lane->send(s);
}

void tcp_messages::receive_released(tcp_serving& s) noexcept {
    if (!s.receive_canceled || s.receive == nullptr) return;
    std::exchange(s.receive, nullptr)->complete(s.why);
}

// ---- ending ----

void tcp_messages::cancel(transfer& t, error why) noexcept {
    if (phase_of(t) == tcp_phase::waits_for_credit) {
        sends_.remove(t);
        t.complete(std::move(why));
        pump(); // what was behind it may need less room
        connection_.something_left();
        return;
    }
    if (phase_of(t) == tcp_phase::posted) {
        receives_.remove(t);
        t.complete(std::move(why));
        return;
    }
    SLUICE_EXPECTS(phase_of(t) == tcp_phase::matched, "tcp: canceled what was not started");
    auto& s = *reinterpret_cast<tcp_serving*>(t.id);
    if (s.receive_canceled) return;
    s.receive_canceled = true;
    s.why = std::move(why);
    if (s.receiving) s.lane->interrupt_receive(s);
    else receive_released(s);
}

void tcp_messages::close(const error& why) noexcept {
    closed_ = true;
    while (!sends_.empty()) sends_.pop().complete(why);
    // Offers whose data will not come, and immediates whose write did not end, are no messages any more.
    for (std::size_t p = inbox_.head(); p < inbox_.tail(); ++p) {
        entry& e = inbox_.at(p);
        if (e.what == entry::kind::message || (e.what == entry::kind::immediate && e.ready)) continue;
        e.ready = e.dropped = true;
    }
    deliver();
    for (std::uint32_t i = 0; i < connection_.lane_count(); ++i)
        connection_.lane(i).servings().for_each([&](tcp_serving& s) {
            if (s.receive != nullptr && !s.receiving) std::exchange(s.receive, nullptr)->complete(s.receive_canceled ? s.why : why);
        });
}

} // namespace sluice::net
