#include "net/tcp_lane.hpp"

#include "net/tcp_connection.hpp"

#include <sys/socket.h>
#include <utility>

namespace sluice::net {

tcp_lane::tcp_lane(tcp_connection& connection, std::uint32_t index, detail::unique_fd socket, std::uint32_t operations)
    : connection_(connection), index_(index), socket_(std::move(socket)), goodbye_(frame_type::goodbye),
      goodbye_ack_(frame_type::goodbye_ack), requests_(operations), servings_(operations) {}

tcp_lane::~tcp_lane() { SLUICE_EXPECTS(!socket_, "tcp: a lane was dropped without end()"); }

void tcp_lane::end(bool reset) noexcept {
    reader_.end(connection_.home());
    writer_.end(connection_.home());
    receiving_ = sending_ = nullptr;
    release_grown();
    close_socket(reset);
}

void tcp_lane::start() noexcept {
    reader_ = read_loop();
    writer_ = write_loop();
    reader_.start(connection_.home());
    writer_.start(connection_.home());
}

/// Cancels the operation and waits until the kernel has let go; its coroutine resumes later and finds the result.
void tcp_lane::settle_in_flight(operation*& op) noexcept {
    executor& home = connection_.home();
    if (op == nullptr || !op->in_flight()) return;
    home.cancel(*op);
    while (op->in_flight()) home.ring().turn_and_wait(std::nullopt);
}

void tcp_lane::interrupt_send() noexcept {
    if (sending_ != nullptr) connection_.home().cancel(*sending_);
}

void tcp_lane::interrupt_receive(const flow& f) noexcept {
    if (sink_.owner == &f && sink_.target != nullptr && receiving_ != nullptr) connection_.home().cancel(*receiving_);
}

void tcp_lane::withdraw_source(const void* tag) noexcept {
    if (!gather_.holds(tag)) return;
    settle_in_flight(sending_);
    gather_.withdraw(tag);
}

void tcp_lane::withdraw_target(const flow& f) noexcept {
    if (sink_.owner != &f || sink_.target == nullptr) return;
    settle_in_flight(receiving_);
    release_target();
}

void tcp_lane::shut() noexcept {
    if (std::exchange(shut_, true)) return;
    shut_socket();
    executor& home = connection_.home();
    if (receiving_ != nullptr) home.cancel(*receiving_);
    if (sending_ != nullptr) home.cancel(*sending_);
    if (idling_) idle_.nudge();
}

void tcp_lane::shut_socket() noexcept {
    // Not through the ring, where it would take a worker thread; ENOTCONN only says that the peer was quicker.
    static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
}

void tcp_lane::close_socket(bool reset) noexcept {
    SLUICE_EXPECTS(receiving_ == nullptr && sending_ == nullptr, "tcp: a socket was closed under an operation");
    if (reset && socket_) {
        const linger abort{.l_onoff = 1, .l_linger = 0};
        static_cast<void>(::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort));
    }
    socket_.reset();
}

} // namespace sluice::net
