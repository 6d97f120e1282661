#include "examples/object_store/crc32c.hpp"

#include <isa-l/crc.h>

#include <algorithm>

namespace store {

void crc32c::add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
        const std::size_t n = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30); // the length is an int
        // ISA-L only reads, though its parameter is not const.
        auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
        state_ = crc32_iscsi(data, static_cast<int>(n), state_);
        bytes = bytes.subspan(n);
    }
}

} // namespace store
