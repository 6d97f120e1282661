#include "net/tcp_serving.hpp"

#include "net/tcp_connection.hpp"
#include "net/tcp_gather.hpp"

#include <algorithm>

namespace sluice::net {

void tcp_serving::begin(tcp_connection& c, tcp_lane& l, kind k, const frame& request) noexcept {
    SLUICE_EXPECTS(!active(), "tcp: an operation of the peer began twice");
    SLUICE_EXPECTS(!queued, "tcp: an operation of the peer began before the one before had ended");
    *this = tcp_serving{};
    connection = &c;
    lane = &l;
    what = k;
    id = request.id;
}

bool tcp_serving::emit(gather& out) noexcept {
    switch (what) {
    case kind::read: return emit_read(out);
    case kind::message:
        if (finished) return emit_end(out);
        out.add({.type = frame_type::accept, .id = id});
        return false;
    case kind::write:
    case kind::atomic: return emit_end(out);
    case kind::none: break;
    }
    return false;
}

bool tcp_serving::emit_read(gather& out) noexcept {
    if (status == frame_status::ok && done_bytes < size) {
        const std::uint64_t bytes = std::min<std::uint64_t>(size - done_bytes, data_bytes);
        out.add({.type = frame_type::reply, .id = id, .address = done_bytes}, {memory + done_bytes, bytes}, nullptr, share);
        done_bytes += bytes;
        if (done_bytes < size) return true;
    }
    if (status == frame_status::ok) {
        ++connection->counters().served_operations;
        connection->counters().served_bytes += size;
    }
    return emit_end(out, share);
}

/// The last frame. From here on the peer may use the number again.
bool tcp_serving::emit_end(gather& out, const void* tag) noexcept {
    if (what == kind::atomic && status == frame_status::ok) ++connection->counters().served_operations;
    out.add({.type = frame_type::end, .status = status, .id = id, .operand = value}, {}, nullptr, tag);
    end();
    return false;
}

std::byte* tcp_serving::fill(std::size_t) noexcept {
    if (what == kind::write) return share == nullptr ? nullptr : memory + done_bytes;
    if (receive == nullptr || receive_canceled) return nullptr;
    receiving = true;
    return receive->target.data() + done_bytes;
}

void tcp_serving::filled(std::size_t bytes) noexcept {
    done_bytes += bytes;
    if (what == kind::write && size <= inline_write_bytes_max) connection->agent().finish_write(*this);
}

void tcp_serving::target_released() noexcept {
    receiving = false;
    if (what == kind::message) connection->messages().receive_released(*this);
}

bool tcp_serving::withdrawn() const noexcept {
    return what == kind::message ? receive_canceled : share == nullptr;
}

} // namespace sluice::net
