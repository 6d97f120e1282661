#pragma once

#include <sluice/region.hpp>

#include "tests/conformance/verify.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace sluice::conformance {

/// Memory of a test, registered. Page-aligned, zero at first.
class buffer {
public:
    explicit buffer(std::size_t size_bytes);
    /// `size_bytes` of address space over a file in memory of `period_bytes`, again and again: huge transfers in little
    /// memory. Each byte of the file stands for many of the range.
    static buffer repeated(std::size_t size_bytes, std::size_t period_bytes);

    std::byte* data() const noexcept { return memory_.data; }
    std::size_t size_bytes() const noexcept { return region_.size_bytes(); }
    std::span<std::byte> bytes() const noexcept { return {data(), size_bytes()}; }
    region_view view() const noexcept { return region_.view(); }
    region_view first(std::size_t n) const noexcept { return view().first(n); }
    region_view subview(std::size_t offset, std::size_t n) const noexcept { return view().subview(offset, n); }
    operator region_view() const noexcept { return view(); }
    operator const_region_view() const noexcept { return view(); }

private:
    buffer() = default;
    struct mapping {
        std::byte* data = nullptr;
        std::size_t size_bytes = 0;
        mapping() = default;
        mapping(std::byte* at, std::size_t n) noexcept : data(at), size_bytes(n) {}
        mapping(mapping&& other) noexcept : data(std::exchange(other.data, nullptr)), size_bytes(other.size_bytes) {}
        mapping& operator=(mapping&& other) noexcept {
            std::swap(data, other.data);
            std::swap(size_bytes, other.size_bytes);
            return *this;
        }
        ~mapping();
    };
    mapping memory_;
    memory_region region_;
};

/// Fills with bytes that depend on the seed and on their place, so that a shift or a swap shows.
void fill(std::span<std::byte> bytes, std::uint64_t seed);
/// Where the bytes first differ from what fill() of the seed would have written; their number if nowhere.
std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed);
/// Fills with one value.
void fill_with(std::span<std::byte> bytes, std::byte value);
/// Where a byte is first something else.
std::size_t first_other(std::span<const std::byte> bytes, std::byte value);

inline void must_hold(std::span<const std::byte> bytes, std::uint64_t seed,
                      std::source_location where = std::source_location::current()) {
    const std::size_t at = first_difference(bytes, seed);
    if (at != bytes.size())
        throw failure("of " + std::to_string(bytes.size()) + " bytes that at " + std::to_string(at) + " is wrong", where);
}
inline void must_be_all(std::span<const std::byte> bytes, std::byte value,
                        std::source_location where = std::source_location::current()) {
    const std::size_t at = first_other(bytes, value);
    if (at != bytes.size())
        throw failure("of " + std::to_string(bytes.size()) + " bytes that at " + std::to_string(at) + " was touched",
                      where);
}

} // namespace sluice::conformance
