#include "net/tcp_connection.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::net {

using detail::transfer;
using detail::transfer_kind;

tcp_connection::tcp_connection(executor& home, const connection_options& options, tcp_terms terms,
                               std::vector<detail::unique_fd> sockets)
    : provider_connection(home, options), terms_(std::move(terms)), requester_(*this),
      messages_(*this, terms_.receive_credits), agent_(*this) {
    SLUICE_EXPECTS(!sockets.empty() && sockets.size() <= lanes_max, "tcp: a connection has 1 to 16 lanes");
    close_timer_.owner = this;
    close_timer_.fire = &tcp_connection::on_close_timeout;
    const std::uint32_t records = terms_.operations_in_flight + terms_.receive_credits;
    for (auto& socket : sockets)
        lanes_.push_back(std::make_unique<tcp_lane>(*this, lane_count(), std::move(socket), records));
    for (auto& lane : lanes_) lane->start();
}

tcp_connection::~tcp_connection() {
    SLUICE_EXPECTS(in_flight() == 0, "connection: destroyed while an operation on it is awaited; stop it and wait first");
    if (close_timer_.linked) home().remove_timer(close_timer_);
    const bool reset = state_ < state::peer_left;
    for (auto& lane : lanes_) lane->end(reset);
}

// ---- operations ----

result<void> tcp_connection::check(const transfer& t) const {
    const auto* memory = t.kind == transfer_kind::read || t.kind == transfer_kind::receive ? t.target.registration()
                                                                                          : t.source.registration();
    if (memory != nullptr && memory->kind == memory_kind::device)
        return error(errc::unsupported, std::string(to_string(t.kind)) + ": tcp can't reach device memory");
    if (t.kind == transfer_kind::send || t.kind == transfer_kind::receive) return {};
    const remote_region& region = t.remote.region();
    if (region.provider != remote_region::provider_kind::tcp)
        return error(errc::access_denied, std::string(to_string(t.kind)) +
                                              ": the region was shared over rdma, this connection uses tcp");
    if (region.owner != terms_.peer)
        return error(errc::access_denied, std::string(to_string(t.kind)) + ": the region was shared by " + std::to_string(region.owner) +
                                              ", the peer of this connection is " + std::to_string(terms_.peer));
    return {};
}

void tcp_connection::start(transfer& t) noexcept {
    if (state_ != state::open && t.kind != transfer_kind::receive) {
        t.complete(cause());
        return;
    }
    if (auto ok = check(t); !ok) {
        t.complete(std::move(ok).error());
        return;
    }
    switch (t.kind) {
    case transfer_kind::receive: messages_.start_receive(t); break;
    case transfer_kind::send:
    case transfer_kind::write_with_immediate: messages_.start_send(t); break;
    default: requester_.start(t); break;
    }
}

void tcp_connection::cancel(transfer& t, error why) noexcept {
    SLUICE_EXPECTS(t.in_flight(), "tcp: canceled what has ended");
    switch (phase_of(t)) {
    case tcp_phase::waits_for_room:
    case tcp_phase::started: requester_.cancel(t, std::move(why)); break;
    case tcp_phase::waits_for_credit:
    case tcp_phase::posted:
    case tcp_phase::matched: messages_.cancel(t, std::move(why)); break;
    case tcp_phase::none: SLUICE_EXPECTS(false, "tcp: canceled what was not started"); break;
    }
}

task<result<detail::provider_connection::shared>> tcp_connection::share(region_view memory, access granted) {
    if (state_ != state::open) co_return cause();
    if (memory.size_bytes() == 0) co_return error(errc::invalid_argument, "share: 0 bytes, at least 1 is needed");
    const auto bits = static_cast<std::uint16_t>(granted);
    if (bits == 0 || bits > 7)
        co_return error(errc::invalid_argument, "share: access bits " + std::to_string(bits) + ", allowed is 1..7");
    if (memory.registration() != nullptr && memory.registration()->kind == memory_kind::device)
        co_return error(errc::unsupported, "share: tcp can't reach device memory");
    co_return agent_.share(memory, granted);
}

// ---- frames ----

result<void> tcp_connection::place(result<flow*> owner, std::span<const std::byte> payload) {
    if (!owner) return std::move(owner).error();
    flow& f = **owner;
    std::byte* target = payload.empty() ? nullptr : f.fill(payload.size());
    if (target != nullptr) {
        std::copy(payload.begin(), payload.end(), target);
        count_copy(payload.size());
        f.target_released();
    }
    f.filled(payload.size());
    return {};
}

result<flow*> tcp_connection::open_payload(tcp_lane& lane, const frame& f) {
    switch (f.type) {
    case frame_type::write:
    case frame_type::write_immediate: return agent_.on_write(lane, f);
    case frame_type::data: return agent_.open_data(lane, f);
    case frame_type::reply: {
        auto r = requester_.open_reply(lane, f);
        if (!r) return std::move(r).error();
        return static_cast<flow*>(*r);
    }
    default: break;
    }
    return error(errc::protocol_error, std::string("frame ") + to_string(f.type) + " with a payload of " +
                                           std::to_string(f.payload_bytes) + " bytes");
}

result<void> tcp_connection::dispatch(tcp_lane& lane, const frame& f, std::span<const std::byte> payload) {
    if (lane.peer_said_goodbye && f.type != frame_type::goodbye_ack)
        return error(errc::protocol_error, std::string("frame ") + to_string(f.type) + " after the goodbye");
    switch (f.type) {
    case frame_type::read: return agent_.on_read(lane, f);
    case frame_type::write:
    case frame_type::write_immediate:
    case frame_type::data:
    case frame_type::reply: return place(open_payload(lane, f), payload);
    case frame_type::fetch_add:
    case frame_type::compare_swap: return agent_.on_atomic(lane, f);
    case frame_type::offer: return agent_.on_offer(lane, f);
    case frame_type::commit: return agent_.on_commit(lane, f);
    case frame_type::cancel: return agent_.on_cancel(lane, f);
    case frame_type::accept: return requester_.on_accept(lane, f);
    case frame_type::end: return requester_.on_end(lane, f);
    case frame_type::message: return messages_.on_message(f, payload);
    case frame_type::credit: return messages_.on_credit(f);
    case frame_type::goodbye: on_goodbye(lane); return {};
    case frame_type::goodbye_ack: on_goodbye_ack(lane); return {};
    }
    return error(errc::protocol_error, "frame of an unknown type");
}

bool tcp_connection::on_frame(tcp_lane& lane, const frame& f, std::span<const std::byte> payload) noexcept {
    auto ok = dispatch(lane, f, payload);
    if (ok) return true;
    fail(std::move(ok).error());
    return false;
}

// ---- facts ----

capabilities tcp_connection::capabilities() const noexcept {
    return {.remote_cpu_bypass = false,
            .atomics = true,
            .message_bytes_max = terms_.message_bytes_max,
            .lanes = lane_count(),
            .operations_in_flight = terms_.operations_in_flight};
}

connection_stats tcp_connection::stats() const {
    connection_stats s = provider_connection::stats();
    s.served_operations = counters_.served_operations;
    s.served_bytes = counters_.served_bytes;
    s.refused_operations = counters_.refused_operations;
    s.copied_bytes = copied_bytes_;
    return s;
}

} // namespace sluice::net
