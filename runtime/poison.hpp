#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_HAS_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_HAS_POISON 1
#endif
#endif

#ifdef SLUICE_HAS_POISON
#include <sanitizer/asan_interface.h>
#endif

namespace sluice::detail {

/// Under AddressSanitizer any touch of [data, data + size_bytes) by the program is reported from here on; otherwise
/// nothing. The kernel and devices are not watched.
inline void poison([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t size_bytes) noexcept {
#ifdef SLUICE_HAS_POISON
    __asan_poison_memory_region(data, size_bytes);
#endif
}

/// The reverse of poison().
inline void unpoison([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t size_bytes) noexcept {
#ifdef SLUICE_HAS_POISON
    __asan_unpoison_memory_region(data, size_bytes);
#endif
}

} // namespace sluice::detail
