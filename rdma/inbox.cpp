#include "rdma/inbox.hpp"

#include "rdma/rdma_connection.hpp"
#include "rdma/rdma_transfer.hpp"

#include <cstring>
#include <string>
#include <utility>

namespace sluice::rdma {

using detail::transfer;

void inbox::start(transfer& t) noexcept {
    set_phase(t, rdma_phase::receives);
    receives_.push(t);
    deliver();
    connection_.out().pump(); // a credit may be due
}

result<void> inbox::admit(const entry& e) {
    if (held_ == credits_max_)
        return error(errc::protocol_error, "the peer sent more messages than the " + std::to_string(credits_max_) +
                                               " that it has credits for");
    ++held_;
    entries_.push(e);
    return {};
}

result<void> inbox::on_message(std::span<const std::byte> payload) {
    if (payload.size() > connection_.terms().message_bytes_max)
        return error(errc::protocol_error, "frame message: " + std::to_string(payload.size()) + " bytes, allowed is " +
                                               std::to_string(connection_.terms().message_bytes_max));
    const bool straight = entries_.empty() && !receives_.empty();
    if (auto ok = admit({.what = frame_type::message, .size = payload.size()}); !ok) return ok;
    connection_.count_copy(payload.size());
    if (!straight) {
        bytes_.push(payload);
        deliver();
        return {};
    }
    entries_.pop();
    transfer& receive = receives_.pop();
    if (payload.size() > receive.target.size_bytes()) {
        too_long(receive, payload.size());
    } else {
        if (!payload.empty()) std::memcpy(receive.target.data(), payload.data(), payload.size());
        finish(receive, payload.size());
    }
    taken();
    return {};
}

result<void> inbox::on_offer(const frame& f) {
    if (f.size <= slot_payload_bytes || f.size > connection_.terms().message_bytes_max)
        return error(errc::protocol_error, "frame offer: a message of " + std::to_string(f.size) + " bytes, allowed is " +
                                               std::to_string(slot_payload_bytes + 1) + ".." +
                                               std::to_string(connection_.terms().message_bytes_max));
    if (connection_.said_goodbye()) return {}; // the peer will hear of it and give it up
    if (auto ok = admit({.what = frame_type::offer, .size = f.size}); !ok) return ok;
    deliver();
    return {};
}

result<void> inbox::on_immediate(const frame& f) {
    if (f.size > connection_.largest_shared_bytes())
        return error(errc::protocol_error, "frame immediate: of a write of " + std::to_string(f.size) +
                                               " bytes, the largest region shared was " +
                                               std::to_string(connection_.largest_shared_bytes()));
    if (auto ok = admit({.what = frame_type::immediate, .immediate = f.immediate, .size = f.size}); !ok) return ok;
    deliver();
    return {};
}

result<void> inbox::on_fragment(std::span<const std::byte> payload) {
    if (filling_.empty()) return error(errc::protocol_error, "frame fragment: no message was asked for");
    filling& now = filling_.front();
    if (payload.empty() || payload.size() > now.size - now.got)
        return error(errc::protocol_error, "frame fragment: " + std::to_string(payload.size()) + " bytes, " +
                                               std::to_string(now.size - now.got) + " are missing");
    if (now.receive != nullptr) std::memcpy(now.receive->target.data() + now.got, payload.data(), payload.size());
    connection_.count_copy(payload.size());
    now.got += payload.size();
    if (now.got < now.size) return {};
    if (now.receive != nullptr) finish(*now.receive, now.size);
    filling_.pop();
    return {};
}

/// The sender gave it up: whoever waited for it gets the next one.
result<void> inbox::on_abandon() {
    if (filling_.empty()) return error(errc::protocol_error, "frame abandon: no message was asked for");
    transfer* receive = filling_.front().receive;
    filling_.pop();
    if (receive == nullptr) return {};
    set_phase(*receive, rdma_phase::receives);
    receives_.push_front(*receive);
    deliver();
    return {};
}

/// Matches messages and receives, both in order.
void inbox::deliver() noexcept {
    while (!entries_.empty() && !receives_.empty()) {
        const entry e = entries_.front();
        entries_.pop();
        deliver_to(receives_.pop(), e);
        taken();
    }
    if (!closed_ || !entries_.empty()) return;
    while (!receives_.empty()) receives_.pop().complete(connection_.cause());
}

void inbox::deliver_to(transfer& receive, const entry& e) noexcept {
    const bool fits = e.what == frame_type::immediate || e.size <= receive.target.size_bytes();
    if (e.what == frame_type::message) bytes_.pop(fits ? receive.target.data() : nullptr, e.size);
    if (e.what == frame_type::offer) connection_.out().control({.type = frame_type::accept, .size = fits ? e.size : 0});
    if (!fits) {
        too_long(receive, e.size);
        return;
    }
    switch (e.what) {
    case frame_type::offer:
        set_phase(receive, rdma_phase::filling);
        filling_.push({.receive = &receive, .size = e.size});
        return;
    case frame_type::immediate:
        receive.has_immediate = true;
        receive.immediate = e.immediate;
        break;
    default: break;
    }
    finish(receive, e.size);
}

void inbox::finish(transfer& receive, std::uint64_t size) noexcept {
    receive.received_bytes = size;
    receive.complete();
}

void inbox::too_long(transfer& receive, std::uint64_t size) noexcept {
    receive.complete(error(errc::message_too_long, "receive: a message of " + std::to_string(size) +
                                                       " bytes, the buffer has " +
                                                       std::to_string(receive.target.size_bytes())));
}

void inbox::taken() noexcept {
    --held_;
    connection_.out().owe_credit();
}

void inbox::cancel(transfer& t, error why) noexcept {
    if (phase_of(t) == rdma_phase::receives) {
        receives_.remove(t);
    } else {
        // Only the processor copies into its memory, so that it is free at once.
        for (std::size_t p = filling_.head(); p < filling_.tail(); ++p)
            if (filling_.at(p).receive == &t) filling_.at(p).receive = nullptr;
    }
    t.complete(std::move(why));
}

void inbox::drop_offers() noexcept {
    net::ring_queue<entry> kept;
    for (; !entries_.empty(); entries_.pop())
        if (entries_.front().what != frame_type::offer) kept.push(entries_.front());
    entries_ = std::move(kept);
    deliver();
}

void inbox::close() noexcept {
    if (std::exchange(closed_, true)) return;
    drop_offers();
    for (; !filling_.empty(); filling_.pop())
        if (transfer* receive = filling_.front().receive; receive != nullptr) receive->complete(connection_.cause());
}

} // namespace sluice::rdma
