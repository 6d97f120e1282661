#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace store {

/// CRC32C (Castagnoli) of bytes given in order, by ISA-L, which uses the processor's instruction for it.
class crc32c {
public:
    void add(std::span<const std::byte> bytes) noexcept;
    std::uint32_t value() const noexcept { return ~state_; }

private:
    std::uint32_t state_ = ~std::uint32_t{0};
};

} // namespace store
