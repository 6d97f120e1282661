#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::rdma {

///@{
/// Little-endian numbers at fixed offsets, byte by byte: the same on any host, and compilers make one move of it.
template <std::unsigned_integral T>
void put(std::span<std::byte> bytes, std::size_t offset, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i)
        bytes[offset + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
}
template <std::unsigned_integral T>
T get(std::span<const std::byte> bytes, std::size_t offset) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(bytes[offset + i]) << (8 * i);
    return static_cast<T>(value);
}
///@}

} // namespace sluice::rdma
