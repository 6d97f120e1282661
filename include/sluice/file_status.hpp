#pragma once

#include <sluice/memory.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

/// What a name in a file system stands for.
enum class file_type : std::uint8_t { unknown, regular, directory, symlink, fifo, socket, character_device, block_device };

/// What the file system knows about a file [statx(2)].
struct file_status {
    std::uint64_t size_bytes = 0;      ///< logical size; 0 for what has none
    std::uint64_t allocated_bytes = 0; ///< on the disk; smaller than the size for sparse files
    file_type type = file_type::unknown; ///< `symlink` only from what doesn't follow: stat_link, directory::stat
    std::uint16_t permissions = 0; ///< the twelve permission bits [inode(7)]
    std::uint32_t links = 0;       ///< hard links; 0 for an open file whose last name is gone
    std::uint32_t user = 0;        ///< number of the owner [inode(7)]
    std::uint32_t group = 0;       ///< likewise
    std::uint64_t device = 0; ///< with `inode`: which file it is
    std::uint64_t inode = 0;  ///< unique within `device` while the file lives
    std::chrono::sys_time<std::chrono::nanoseconds> modified{}; ///< last change of the content [inode(7) mtime]
};

/// One name in a directory.
struct directory_entry {
    std::string name;                    ///< without the directory; any bytes but "/" and NUL
    file_type type = file_type::unknown; ///< `unknown` where the file system doesn't say [readdir(3)]
};

/// Counters of one direction of a file.
struct file_counters {
    std::uint64_t operations = 0; ///< ended well
    std::uint64_t failures = 0;   ///< ended with an error, cancellation included
    std::array<std::uint64_t, static_cast<std::size_t>(path::count_)> bytes_by_path{}; ///< see bytes()

    /// `s.read.bytes(path::file_direct)`
    std::uint64_t bytes(path p) const noexcept { return bytes_by_path[static_cast<std::size_t>(p)]; }
};

/// A snapshot of a file's counters. Bytes count as they move, also in operations that fail later.
struct file_stats {
    ///@{
    /// Vectored ones and read_exact included.
    file_counters read, write;
    ///@}
    std::uint64_t fixed_operations = 0; ///< requests that used registered memory
};

} // namespace sluice
