#include <sluice/stream.hpp>

#include "net/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <sys/socket.h>

namespace sluice {

namespace {

// The kernel moves at most this much per call, and the request's length has 32 bits [write(2)].
constexpr std::size_t call_bytes_max = 0x7ffff000;

std::uint32_t call_bytes(std::size_t wanted) noexcept {
    return static_cast<std::uint32_t>(std::min(wanted, call_bytes_max));
}

} // namespace

namespace detail {

stream_receive::stream_receive(stream_state& socket, std::span<std::byte> into) noexcept
    : stream_operation(socket.receiving, &stream_receive::step, "stream: two reads at once on one stream") {
    SLUICE_EXPECTS(!into.empty(), "stream: read_some into no memory could not be told from the end of the stream");
    request_.code = opcode::recv;
    request_.fd = socket.fd;
    request_.address = reinterpret_cast<std::uint64_t>(into.data());
    request_.length = call_bytes(into.size());
}

bool stream_receive::step(operation& op) noexcept {
    auto& self = static_cast<stream_receive&>(op);
    if (self.result_ == -EINTR || self.result_ == -EAGAIN) return self.restart();
    if (self.result_ > 0) self.progress_ = static_cast<std::size_t>(self.result_);
    return true;
}

stream_receive_exactly::stream_receive_exactly(stream_state& socket, std::span<std::byte> into) noexcept
    : stream_operation(socket.receiving, &stream_receive_exactly::step, "stream: two reads at once on one stream"),
      into_(into) {
    request_.code = into.empty() ? opcode::nop : opcode::recv; // recv of nothing would wait for a byte
    request_.fd = socket.fd;
    request_.op_flags = into.empty() ? 0 : MSG_WAITALL; // short results are then rare; the step copes with them
    if (!into.empty()) aim();
}

void stream_receive_exactly::aim() noexcept {
    request_.address = reinterpret_cast<std::uint64_t>(into_.data() + progress_);
    request_.length = call_bytes(into_.size() - progress_);
}

bool stream_receive_exactly::step(operation& op) noexcept {
    auto& self = static_cast<stream_receive_exactly&>(op);
    if (self.result_ == -EINTR || self.result_ == -EAGAIN) return self.restart();
    if (self.result_ <= 0) return true;
    self.progress_ += static_cast<std::size_t>(self.result_);
    if (self.progress_ == self.into_.size()) return true;
    self.aim();
    return self.restart();
}

stream_send::stream_send(stream_state& socket, std::span<const std::byte> from) noexcept
    : stream_operation(socket.sending, &stream_send::step, "stream: two writes at once on one stream"), from_(from) {
    request_.code = from.empty() ? opcode::nop : opcode::send;
    request_.fd = socket.fd;
    request_.op_flags = from.empty() ? 0 : MSG_NOSIGNAL | MSG_WAITALL;
    if (!from.empty()) aim();
}

void stream_send::aim() noexcept {
    request_.address = reinterpret_cast<std::uint64_t>(from_.data() + progress_);
    request_.length = call_bytes(from_.size() - progress_);
}

bool stream_send::step(operation& op) noexcept {
    auto& self = static_cast<stream_send&>(op);
    if (self.result_ == -EINTR || self.result_ == -EAGAIN) return self.restart();
    if (self.result_ <= 0) return true;
    self.progress_ += static_cast<std::size_t>(self.result_);
    if (self.progress_ == self.from_.size()) return true;
    self.aim();
    return self.restart();
}

} // namespace detail

namespace net {

send_segments::send_segments(detail::stream_state& socket, std::span<iovec> segments) noexcept
    : stream_operation(socket.sending, &send_segments::step, "stream: two writes at once on one stream"),
      segments_(segments) {
    request_.fd = socket.fd;
    skip(0);
    request_.code = segments_.empty() ? opcode::nop : opcode::sendmsg;
    if (segments_.empty()) return;
    request_.op_flags = MSG_NOSIGNAL | MSG_WAITALL;
    request_.address = reinterpret_cast<std::uint64_t>(&message_);
    request_.length = 1;
    aim();
}

void send_segments::aim() noexcept {
    message_.msg_iov = segments_.data();
    message_.msg_iovlen = std::min<std::size_t>(segments_.size(), IOV_MAX);
}

/// Takes `bytes` off the front, and empty segments with them.
void send_segments::skip(std::size_t bytes) noexcept {
    while (!segments_.empty() && bytes >= segments_.front().iov_len) {
        bytes -= segments_.front().iov_len;
        segments_ = segments_.subspan(1);
    }
    SLUICE_EXPECTS(bytes == 0 || !segments_.empty(), "stream: the kernel sent more than it was given");
    if (bytes == 0) return;
    iovec& first = segments_.front();
    first.iov_base = static_cast<char*>(first.iov_base) + bytes;
    first.iov_len -= bytes;
}

bool send_segments::step(operation& op) noexcept {
    auto& self = static_cast<send_segments&>(op);
    if (self.result_ == -EINTR || self.result_ == -EAGAIN) return self.restart();
    if (self.result_ <= 0) return true;
    self.progress_ += static_cast<std::size_t>(self.result_);
    self.skip(static_cast<std::size_t>(self.result_));
    if (self.segments_.empty()) return true;
    self.aim();
    return self.restart();
}

accept_request::accept_request(detail::stream_state& socket) noexcept
    : stream_operation(socket.receiving, &accept_request::step, "listener: two accepts at once") {
    request_.code = opcode::accept;
    request_.fd = socket.fd;
    request_.op_flags = SOCK_CLOEXEC;
}

bool accept_request::step(operation& op) noexcept {
    auto& self = static_cast<accept_request&>(op);
    switch (-self.result_) {
    case EINTR:
    case EAGAIN:
    case ECONNABORTED: // the peer gave up while it waited
    case EPROTO:       // from here on: errors of the new connection, which Linux reports on accept [accept(2)]
    case ENETDOWN:
    case ENETUNREACH:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET: return self.restart();
    default: return true;
    }
}

connect_request::connect_request(detail::stream_state& socket, const endpoint& to) noexcept
    : stream_operation(socket.sending, nullptr, "stream: connect while a write is in flight"), to_(to) {
    request_.code = opcode::connect;
    request_.fd = socket.fd;
    request_.address = reinterpret_cast<std::uint64_t>(to_.get());
    request_.offset = to_.length;
}

} // namespace net

} // namespace sluice
