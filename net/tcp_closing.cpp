#include "net/tcp_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

// How a connection ends: a goodbye and its acknowledgement on every lane, or the first failure.
namespace sluice::net {

namespace {

error lost(std::int32_t result, const std::string& peer) {
    if (result == 0)
        return {make_error_code(errc::closed), "the peer " + peer + " closed the connection without a goodbye"};
    if (result == -ETIMEDOUT) return {make_error_code(errc::peer_lost), "the peer " + peer};
    return error::from_errno(-result, "the connection to " + peer + " broke");
}

} // namespace

bool tcp_connection::all_lanes(bool tcp_lane::* flag) const noexcept {
    return std::all_of(lanes_.begin(), lanes_.end(), [flag](const auto& lane) { return (*lane).*flag; });
}

void tcp_connection::begin_close() noexcept {
    if (state_ != state::open) return;
    state_ = state::closing;
    cause_ = error(errc::closed, "this end closed the connection");
    something_left();
}

void tcp_connection::something_left() noexcept {
    if (state_ != state::closing || !requester_.all_left() || !messages_.all_left()) return;
    state_ = state::said_goodbye;
    for (auto& lane : lanes_) lane->say_goodbye();
}

void tcp_connection::on_goodbye(tcp_lane& lane) noexcept {
    lane.peer_said_goodbye = true;
    if (!all_lanes(&tcp_lane::peer_said_goodbye) || state_ >= state::ending) return;
    const bool both = state_ == state::said_goodbye;
    if (!both) {
        if (!cause_) cause_ = error(errc::closed, "the peer " + terms_.peer_address + " closed the connection");
        state_ = state::peer_left;
    }
    for (auto& each : lanes_) each->acknowledge_goodbye();
    if (both) return;
    messages_.close(*cause_);
    requester_.cancel_all(*cause_);
}

void tcp_connection::on_goodbye_ack(tcp_lane& lane) noexcept {
    lane.peer_acknowledged = true;
    if (state_ == state::said_goodbye && all_lanes(&tcp_lane::peer_acknowledged)) tear_down();
}

void tcp_connection::stream_ended(tcp_lane& lane, std::int32_t result) noexcept {
    if (state_ >= state::ending) return;
    // After the goodbyes an end of the stream is what they announced.
    if (state_ == state::peer_left || (state_ == state::said_goodbye && (result == 0 || lane.peer_said_goodbye))) {
        tear_down();
        return;
    }
    if (lane.write_error.code()) fail(lane.write_error);
    else fail(lost(result, terms_.peer_address));
}

/// The peer's last words may still be unread, a goodbye among them: the reader decides what this means.
void tcp_connection::sending_failed(tcp_lane& lane, std::int32_t result) noexcept {
    lane.write_error = lost(result == -EPIPE ? 0 : result, terms_.peer_address);
    lane.shut_socket();
}

void tcp_connection::fail(error why) noexcept {
    if (state_ >= state::ending) return;
    failure_ = why;
    if (!cause_) cause_ = std::move(why);
    tear_down();
}

void tcp_connection::tear_down() noexcept {
    if (state_ >= state::ending) return;
    state_ = state::ending;
    for (auto& lane : lanes_) lane->shut();
}

/// Once no coroutine runs no memory is held by the kernel, and everything that waits can end.
void tcp_connection::loop_ended() noexcept {
    if (!std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->ended(); })) return;
    SLUICE_EXPECTS(state_ == state::ending, "tcp: the lanes ended by themselves");
    state_ = state::down;
    if (!cause_) cause_ = error(errc::closed);
    if (close_timer_.linked) home().remove_timer(close_timer_);
    for (auto& lane : lanes_) lane->close_socket(failure_.has_value());
    messages_.close(*cause_);
    requester_.abandon_all(*cause_);
    agent_.abandon_all();
    down_.set();
}

task<result<void>> tcp_connection::close() {
    begin_close();
    if (state_ < state::down && !close_timer_.linked) {
        close_timer_.deadline = detail::deadline_after(options().peer_timeout);
        home().add_timer(close_timer_);
    }
    co_return co_await closed();
}

task<result<void>> tcp_connection::closed() {
    auto waited = co_await down_.wait();
    if (!waited) co_return waited;
    if (failure_) co_return *failure_;
    co_return result<void>();
}

void tcp_connection::on_close_timeout(detail::timer_node& node) noexcept {
    tcp_connection& self = *static_cast<close_timer&>(node).owner;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(self.options().peer_timeout).count();
    self.fail(error(errc::peer_lost, "close: no goodbye from the peer " + self.terms_.peer_address + " within " +
                                         std::to_string(waited) + " ms (connection_options.peer_timeout)"));
}

} // namespace sluice::net
