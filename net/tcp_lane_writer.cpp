#include "net/tcp_connection.hpp"
#include "net/tcp_lane.hpp"
#include "net/tcp_socket.hpp"

#include <cerrno>

namespace sluice::net {

void tcp_lane::send(flow& f) noexcept {
    if (shut_ || f.queued) return;
    control_.push(f);
    if (idling_) idle_.nudge();
}

void tcp_lane::send_bulk(flow& f) noexcept {
    if (shut_ || f.queued) return;
    bulk_.push(f);
    if (idling_) idle_.nudge();
}

void tcp_lane::say(signal& s) noexcept {
    silent_ = true;
    if (shut_ || s.queued) return;
    signals_.push(s);
    if (idling_) idle_.nudge();
}

bool tcp_lane::signal::emit(gather& out) noexcept {
    out.add({.type = type_});
    return false;
}

background tcp_lane::write_loop() {
    bool working = true;
    while (working && !shut_) {
        collect();
        if (gather_.done()) {
            idling_ = true;
            co_await idle_.wait();
            idling_ = false;
            continue;
        }
        while (working && !gather_.done()) {
            send_request next(socket_.get(), gather_.segments());
            sending_ = &next;
            const std::int32_t result = co_await next;
            sending_ = nullptr;
            working = sent(result);
        }
    }
    writer_done_ = true;
    connection_.loop_ended();
}

/// Fills the gather. Control frames have the first go; where bulk waits it gets at least one frame. A goodbye comes
/// last: nothing but its acknowledgement may follow it.
void tcp_lane::collect() noexcept {
    gather_.clear();
    bool bulk_waits = !silent_ && !bulk_.empty();
    while (!muted_ && gather_.has_room()) {
        const bool last_chance = bulk_waits && !gather_.has_room_beside_bulk();
        if (!control_.empty() && !last_chance) {
            flow& f = control_.pop();
            if (f.emit(gather_)) bulk_.push(f);
        } else if (!bulk_.empty() && !silent_) {
            bulk_waits = false;
            flow& f = bulk_.pop();
            if (f.emit(gather_)) bulk_.push(f);
        } else {
            break;
        }
    }
    while (!signals_.empty() && gather_.has_room() && (muted_ || control_.empty())) {
        signals_.pop().emit(gather_);
        muted_ = true;
    }
}

/// False ends the writer: the reader finds out how the stream ends, since the peer's last words may still be there.
bool tcp_lane::sent(std::int32_t result) noexcept {
    if (shut_) return false;
    if (result > 0) {
        gather_.sent(static_cast<std::size_t>(result));
    } else if (result != -ECANCELED && result != -EINTR && result != -EAGAIN) {
        connection_.sending_failed(*this, result);
        return false;
    }
    gather_.withdraw_owners();
    return true;
}

} // namespace sluice::net
