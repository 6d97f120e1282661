#pragma once

#include <sluice/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/socket.h>

namespace sluice::net {

/// One recv, as the kernel answers it: bytes, 0 at the end of the stream, or a negative errno value. With MSG_WAITALL
/// the kernel fills the memory before it answers; canceled half-way it answers with what has arrived
/// [io_uring_prep_recv(3)].
class [[nodiscard]] receive_request : public operation {
public:
    receive_request(int fd, std::span<std::byte> into, int flags) noexcept {
        request_.code = opcode::recv;
        request_.fd = fd;
        request_.address = reinterpret_cast<std::uint64_t>(into.data());
        request_.length = static_cast<std::uint32_t>(into.size());
        request_.op_flags = static_cast<std::uint32_t>(flags);
    }
    std::int32_t await_resume() const noexcept { return result_; }
};

/// One sendmsg of all segments, as the kernel answers it; short only when it is canceled or fails half-way.
class [[nodiscard]] send_request : public operation {
public:
    send_request(int fd, std::span<iovec> segments) noexcept {
        message_.msg_iov = segments.data();
        message_.msg_iovlen = segments.size();
        request_.code = opcode::sendmsg;
        request_.fd = fd;
        request_.address = reinterpret_cast<std::uint64_t>(&message_);
        request_.length = 1;
        request_.op_flags = MSG_NOSIGNAL | MSG_WAITALL;
    }
    std::int32_t await_resume() const noexcept { return result_; }

private:
    msghdr message_{}; // the kernel's until completion
};

} // namespace sluice::net
