#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sluice::detail {

/// What direct I/O asks of a file's requests; all zero for a buffered file.
struct direct_limits {
    std::uint32_t memory = 0; ///< alignment of addresses, bytes
    std::uint32_t offset = 0; ///< alignment of offsets and lengths, bytes

    constexpr bool enabled() const noexcept { return offset != 0; }
};

/// Pages that a buffered and a direct write share could lose the direct one: the page is written back whole. So writes
/// go direct in whole pages only, and a page is written either one way or the other [open(2), NOTES on O_DIRECT].
inline constexpr std::uint32_t cache_page_bytes = 4096;

/// The kernel moves at most this much per call, and cuts silently [read(2)].
inline constexpr std::size_t kernel_cap_bytes = 0x7ffff000;

constexpr std::uint32_t granularity(const direct_limits& limits, bool writes) noexcept {
    return writes ? std::max(limits.offset, cache_page_bytes) : limits.offset;
}

/// True when a request of at least one aligned unit can go direct from here.
constexpr bool can_go_direct(const direct_limits& limits, bool writes, std::uint64_t position, std::uintptr_t address,
                             std::size_t left) noexcept {
    if (!limits.enabled()) return false;
    const std::uint32_t unit = granularity(limits, writes);
    return position % unit == 0 && address % limits.memory == 0 && left >= unit;
}

struct piece {
    std::size_t length;
    bool direct;
};

/// The first request of what is left of a contiguous transfer: as much as one request can carry on one path.
constexpr piece first_piece(const direct_limits& limits, bool writes, std::uint64_t position, std::uintptr_t address,
                            std::size_t left) noexcept {
    if (!limits.enabled()) return {std::min(left, kernel_cap_bytes), false};
    const std::uint32_t unit = granularity(limits, writes);
    if (can_go_direct(limits, writes, position, address, left)) {
        // Cut at a multiple of the unit, so that the next request is aligned too.
        return {std::min(left, kernel_cap_bytes) / unit * unit, true};
    }
    // An unaligned head, when the body behind it can go direct; otherwise all of it is buffered.
    const std::size_t head = unit - static_cast<std::size_t>(position % unit);
    if (head != unit && head < left && can_go_direct(limits, writes, position + head, address + head, left - head))
        return {head, false};
    return {std::min(left, kernel_cap_bytes), false};
}

} // namespace sluice::detail
