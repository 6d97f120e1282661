#pragma once

#include <sluice/executor.hpp>
#include <sluice/file_status.hpp>
#include <sluice/operation.hpp>

#include "runtime/direct_io.hpp"
#include "runtime/unique_fd.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace sluice::detail {

/// What an open file is. It stays in place while the `file` that owns it moves, so that operations can refer to it.
/// Executor thread only.
struct file_state {
    file_state(executor& on, int fd, std::string name) noexcept
        : home(on), descriptor(fd), path(std::move(name)) {}
    ~file_state();
    file_state(const file_state&) = delete;
    file_state& operator=(const file_state&) = delete;

    /// Frees the slot in the ring's file table and gives up the descriptor that close() reports on. Contract: nothing
    /// in flight, since a request that is still queued would hit whichever file gets the number next.
    int release() noexcept;
    /// Takes a slot of the ring's file table after enough transfers to be worth two system calls.
    void consider_registering() noexcept;

    executor& home;
    unique_fd descriptor; // has O_DIRECT when the file is direct
    unique_fd buffered;   // only for a direct file: for unaligned parts
    direct_limits direct;
    std::string path;
    file_stats stats;
    std::uint32_t in_flight = 0;
    std::uint32_t transfers_until_registered = 0; // 0: registered, or never to be
    std::int64_t slot = -1;                       // of the ring's file table
};

/// Transfers after which a slot of the file table is taken: taking and giving it back costs about 1.8 us, and a request
/// through it saves 50 to 100 ns (measured on Linux 6.18). A file that can be written takes none: on older kernels the
/// table lets go of a file some time after it was asked to, and executing it would fail with ETXTBSY until then.
inline constexpr std::uint32_t transfers_before_registering = 32;

/// Requests that were refused for the moment (EAGAIN) or interrupted (EINTR) are made again this often.
inline constexpr std::uint8_t refusals_max = 16;
inline constexpr std::uint8_t interruptions_max = 250;

/// True when a request that ended with `result` should be made again; counts in `attempts`.
constexpr bool should_retry(std::int32_t result, std::uint8_t& attempts) noexcept {
    constexpr std::int32_t interrupted = -4; // EINTR
    constexpr std::int32_t refused = -11;    // EAGAIN
    if (result == interrupted) return attempts++ < interruptions_max;
    if (result == refused) return attempts++ < refusals_max;
    return false;
}

} // namespace sluice::detail
