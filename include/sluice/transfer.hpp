#pragma once

#include <sluice/connection.hpp>
#include <sluice/export.hpp>
#include <sluice/file.hpp>
#include <sluice/pool.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice {

/// A part of a file.
struct file_range {
    std::uint64_t offset = 0; ///< bytes from the start of the file
    std::uint64_t size = 0;   ///< bytes
};

/// How a transfer between a file and a peer is cut up.
struct transfer_options {
    std::size_t chunk = 1 << 20;  ///< bytes moved in one operation; 4096..1 GiB, best a multiple of 4096 for direct I/O
    std::uint32_t window = 8;     ///< chunks on the way at once; 1..1024
    std::chrono::nanoseconds deadline{0}; ///< of each chunk's operation on the connection; 0: the connection's default
    memory_pool* pool = nullptr;  ///< where the memory comes from; null: the pool of the runtime that runs the task
};

/// `co_await transfer(file, {.offset = 0, .size = n}, conn, remote, {.chunk = 1 << 20, .window = 8})`: moves a part of a
/// file into a peer's memory, reading some chunks from the disk while others are written to the peer. Holds at most
/// `window` chunks of pool memory, taken in one allocation, and waits for them while the pool is empty; without a
/// runtime `pool` must be given. The sizes of both sides must be equal (a contract). Size 0 succeeds at once.
///
/// Errors: `condition::invalid` (an option, by name), errc::end_of_file when the file is shorter, and those of
/// file::read, connection::write and memory_pool::allocate. The first failure stops the other chunks, which are waited
/// for; the content of the peer's memory is then unspecified. A stop of the task is `condition::canceled`.
/// Lifetime: file, connection and pool outlive the co_await. Thread rule: executor-bound.
SLUICE_EXPORT task<result<void>> transfer(file& from, file_range range, connection& conn, remote_view to,
                                          transfer_options options = {});

/// The same from a peer's memory into a file, which grows as needed. Not synced. After a failure the content of the
/// range is unspecified.
SLUICE_EXPORT task<result<void>> transfer(connection& conn, remote_view from, file& to, file_range range,
                                          transfer_options options = {});

} // namespace sluice
