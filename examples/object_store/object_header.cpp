#include "examples/object_store/object_header.hpp"

#include "examples/object_store/crc32c.hpp"
#include "examples/object_store/protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace store {

namespace {

struct on_disk {
    char magic[8];
    std::uint64_t size_bytes;
    std::uint64_t modified_ns;
    std::uint32_t crc32c;
    std::uint32_t header_crc32c;
};
static_assert(sizeof(on_disk) == object_header::encoded_bytes);

constexpr char magic[] = {'S', 'L', 'U', 'I', 'C', 'E', 'O', '1'};
constexpr std::size_t checked_bytes = sizeof(on_disk) - sizeof(std::uint32_t);

std::uint32_t checksum(std::span<const std::byte> start) noexcept {
    crc32c sum;
    sum.add(start.first(checked_bytes));
    return sum.value();
}

sluice::error corrupt(std::string_view key, std::string_view how) {
    return sluice::error::from_errno(EIO, fmt::format("corrupt object {}: {}", key, how));
}

} // namespace

std::uint64_t object_header::file_bytes(std::uint64_t size_bytes) noexcept {
    return block_bytes + round_up(size_bytes, block_bytes);
}

void object_header::encode(std::span<std::byte> block) const noexcept {
    std::fill(block.begin(), block.end(), std::byte{0});
    on_disk raw{};
    std::memcpy(raw.magic, magic, sizeof magic);
    raw.size_bytes = size_bytes;
    raw.modified_ns = modified_ns;
    raw.crc32c = crc32c;
    raw.header_crc32c = checksum(std::as_bytes(std::span(&raw, 1)));
    std::memcpy(block.data(), &raw, sizeof raw);
}

bool object_header::is_object(std::span<const std::byte> start) noexcept {
    return start.size() >= sizeof magic && std::memcmp(start.data(), magic, sizeof magic) == 0;
}

sluice::result<object_header> object_header::decode(std::span<const std::byte> start, std::uint64_t file_bytes,
                                                    std::string_view key) {
    if (start.size() < encoded_bytes)
        return corrupt(key, fmt::format("its file has {} bytes, too few for a header", file_bytes));
    on_disk raw;
    std::memcpy(&raw, start.data(), sizeof raw);
    if (std::memcmp(raw.magic, magic, sizeof magic) != 0)
        return corrupt(key, "its file does not start with an object's header; it was not put by sluice-store");
    if (raw.header_crc32c != checksum(start)) return corrupt(key, "the checksum of its header does not match");
    object_header header;
    header.size_bytes = raw.size_bytes;
    header.modified_ns = raw.modified_ns;
    header.crc32c = raw.crc32c;
    if (file_bytes != object_header::file_bytes(header.size_bytes))
        return corrupt(key, fmt::format("its file has {} bytes instead of {}", file_bytes,
                                        object_header::file_bytes(header.size_bytes)));
    return header;
}

} // namespace store
