#pragma once

#include <sluice/export.hpp>

#include <cstddef>
#include <cstdint>

namespace sluice::detail {

/// Memory for a coroutine frame, from this thread's recycled blocks where one fits. A block may be freed on any
/// thread; it then serves that thread.
SLUICE_EXPORT void* allocate_frame(std::size_t size_bytes);
SLUICE_EXPORT void free_frame(void* frame, std::size_t size_bytes) noexcept;

struct frame_stats {
    std::uint64_t fresh = 0;    ///< frames that came from the heap
    std::uint64_t recycled = 0; ///< frames that came from this thread's free lists
    std::uint64_t live = 0;     ///< allocated minus freed on this thread; wraps when frames cross threads
};
/// This thread's counters since it started.
SLUICE_EXPORT frame_stats this_thread_frame_stats() noexcept;

} // namespace sluice::detail
