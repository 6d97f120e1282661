#pragma once

#include <sluice/operation.hpp>

#include <array>
#include <cstdint>

namespace sluice::detail {

/// What a file descriptor of an operation may be, for the tests that are generated from the table.
enum class fd_kind : std::uint8_t { none, file, directory, stream, listener, pollable };

/// One row per opcode: the table from which names are printed and the cancel, pre-stopped, errno and queue-full tests
/// are generated, so that no operation is forgotten.
struct operation_info {
    opcode code;
    const char* name;
    fd_kind fd;
    bool can_block;          ///< may stay in flight for ever, so that only a cancel ends it
    bool uses_memory;        ///< the kernel reads or writes the caller's memory
    std::uint8_t completions; ///< per request; 2 for zero-copy, whose notification releases the memory
};

inline constexpr std::array<operation_info, static_cast<std::size_t>(opcode::count_)> operation_table{{
    {opcode::nop, "nop", fd_kind::none, false, false, 1},
    {opcode::read, "read", fd_kind::file, true, true, 1},
    {opcode::write, "write", fd_kind::file, true, true, 1},
    {opcode::readv, "readv", fd_kind::file, true, true, 1},
    {opcode::writev, "writev", fd_kind::file, true, true, 1},
    {opcode::read_fixed, "read_fixed", fd_kind::file, true, true, 1},
    {opcode::write_fixed, "write_fixed", fd_kind::file, true, true, 1},
    {opcode::fsync, "fsync", fd_kind::file, false, false, 1},
    {opcode::fallocate, "fallocate", fd_kind::file, false, false, 1},
    {opcode::openat, "openat", fd_kind::directory, false, true, 1},
    {opcode::openat2, "openat2", fd_kind::directory, false, true, 1},
    {opcode::close, "close", fd_kind::file, false, false, 1},
    {opcode::statx, "statx", fd_kind::directory, false, true, 1},
    {opcode::renameat, "renameat", fd_kind::directory, false, true, 1},
    {opcode::unlinkat, "unlinkat", fd_kind::directory, false, true, 1},
    {opcode::mkdirat, "mkdirat", fd_kind::directory, false, true, 1},
    {opcode::accept, "accept", fd_kind::listener, true, true, 1},
    {opcode::connect, "connect", fd_kind::stream, true, true, 1},
    {opcode::send, "send", fd_kind::stream, true, true, 1},
    {opcode::recv, "recv", fd_kind::stream, true, true, 1},
    {opcode::sendmsg, "sendmsg", fd_kind::stream, true, true, 1},
    {opcode::recvmsg, "recvmsg", fd_kind::stream, true, true, 1},
    {opcode::send_zc, "send_zc", fd_kind::stream, true, true, 2},
    {opcode::sendmsg_zc, "sendmsg_zc", fd_kind::stream, true, true, 2},
    {opcode::poll_add, "poll_add", fd_kind::pollable, true, false, 1},
}};

constexpr const operation_info& info_of(opcode code) noexcept { return operation_table[static_cast<std::size_t>(code)]; }
constexpr const char* operation_name(opcode code) noexcept { return info_of(code).name; }

consteval bool table_is_in_order() {
    for (std::size_t i = 0; i < operation_table.size(); ++i)
        if (operation_table[i].code != static_cast<opcode>(i)) return false;
    return true;
}
static_assert(table_is_in_order(), "operation_table: one row per opcode, in the order of the enumeration");

} // namespace sluice::detail
