#pragma once

#include <sluice/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace store {

/// What stands before the bytes of an object in its file, little-endian:
/// | offset | bytes | field                                              |
/// |--------|-------|----------------------------------------------------|
/// | 0      | 8     | "SLUICEO1"                                         |
/// | 8      | 8     | size of the object in bytes                        |
/// | 16     | 8     | when it was put, nanoseconds since 1970            |
/// | 24     | 4     | CRC32C of the object                               |
/// | 28     | 4     | CRC32C of the 28 bytes before                      |
/// The rest of the first 4096 bytes is zero, then come the object's bytes, then zeros up to a multiple of 4096: so
/// every access is fit for direct I/O. Header and data become visible together, by the rename that ends a put.
struct object_header {
    static constexpr std::size_t encoded_bytes = 32;
    /// Where the object's bytes start.
    static constexpr std::size_t block_bytes = 4096;

    std::uint64_t size_bytes = 0;
    std::uint64_t modified_ns = 0;
    std::uint32_t crc32c = 0;

    /// Size of the file of an object of `size_bytes`.
    static std::uint64_t file_bytes(std::uint64_t size_bytes) noexcept;

    /// Fills a block of `block_bytes`.
    void encode(std::span<std::byte> block) const noexcept;
    /// True for the start of any object's file, also a damaged one; false for somebody else's file.
    static bool is_object(std::span<const std::byte> start) noexcept;
    /// `file_bytes`: the size that the file has. Errors: EIO that says what is damaged; `key` is
    /// for the message.
    static sluice::result<object_header> decode(std::span<const std::byte> start, std::uint64_t file_bytes,
                                                std::string_view key);
};

} // namespace store
