#pragma once

#include <sluice/operation.hpp>

#include <array>
#include <cstdint>
#include <liburing.h>

namespace sluice::detail {

/// The kernel's number of each opcode, in the order of `opcode`.
inline constexpr std::array<std::uint8_t, static_cast<std::size_t>(opcode::count_)> uring_operations{
    IORING_OP_NOP, IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READV, IORING_OP_WRITEV,
    IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED, IORING_OP_FSYNC, IORING_OP_FALLOCATE, IORING_OP_OPENAT,
    IORING_OP_OPENAT2, IORING_OP_CLOSE, IORING_OP_STATX, IORING_OP_RENAMEAT, IORING_OP_UNLINKAT,
    IORING_OP_MKDIRAT, IORING_OP_ACCEPT, IORING_OP_CONNECT, IORING_OP_SEND, IORING_OP_RECV,
    IORING_OP_SENDMSG, IORING_OP_RECVMSG, IORING_OP_SEND_ZC, IORING_OP_SENDMSG_ZC, IORING_OP_POLL_ADD,
};

constexpr std::uint8_t uring_operation(opcode code) noexcept {
    return uring_operations[static_cast<std::size_t>(code)];
}

} // namespace sluice::detail
