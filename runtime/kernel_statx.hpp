#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::detail {

struct kernel_timestamp {
    std::int64_t seconds;
    std::uint32_t nanoseconds;
    std::int32_t reserved;
};

/// struct statx as the kernel writes it; ours, because the C library's may be older than the kernel's
/// [statx(2), linux/stat.h].
struct kernel_statx {
    std::uint32_t mask;
    std::uint32_t block_bytes;
    std::uint64_t attributes;
    std::uint32_t links;
    std::uint32_t user;
    std::uint32_t group;
    std::uint16_t mode;
    std::uint16_t spare0;
    std::uint64_t inode;
    std::uint64_t size_bytes;
    std::uint64_t blocks; // of 512 bytes
    std::uint64_t attributes_mask;
    kernel_timestamp accessed, created, changed, modified;
    std::uint32_t special_major, special_minor;
    std::uint32_t device_major, device_minor;
    std::uint64_t mount;
    std::uint32_t direct_memory_alignment;
    std::uint32_t direct_offset_alignment;
    std::uint64_t spare[12];
};
static_assert(sizeof(kernel_statx) == 256);
static_assert(offsetof(kernel_statx, direct_memory_alignment) == 0x98);

inline constexpr unsigned statx_basic = 0x7ff;        // STATX_BASIC_STATS
inline constexpr unsigned statx_direct_io = 0x2000;   // STATX_DIOALIGN, Linux 6.1
inline constexpr int statx_empty_path = 0x1000;       // AT_EMPTY_PATH
inline constexpr int statx_no_follow = 0x100;         // AT_SYMLINK_NOFOLLOW
inline constexpr int statx_do_not_sync = 0x4000;      // AT_STATX_DONT_SYNC: never asks a server

} // namespace sluice::detail
