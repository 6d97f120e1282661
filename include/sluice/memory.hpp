#pragma once

#include <cstdint>

namespace sluice {

/// Where memory lives. It decides which paths can carry it, not how it is used.
enum class memory_kind : std::uint8_t {
    host,   ///< ordinary process memory
    pinned, ///< host memory that the GPU driver has locked
    device, ///< GPU memory
};

/// What a peer may do with shared memory. Combine with `|`.
enum class access : std::uint16_t {
    none = 0,
    remote_read = 1,
    remote_write = 2,
    remote_atomic = 4,
};

///@{
/// Bit by bit.
constexpr access operator|(access a, access b) noexcept {
    return static_cast<access>(static_cast<std::uint16_t>(a) | static_cast<std::uint16_t>(b));
}
constexpr access operator&(access a, access b) noexcept {
    return static_cast<access>(static_cast<std::uint16_t>(a) & static_cast<std::uint16_t>(b));
}
///@}
/// True when `granted` includes all of `wanted`.
constexpr bool allows(access granted, access wanted) noexcept { return (granted & wanted) == wanted; }

/// Which way the bytes went.
enum class path : std::uint8_t { tcp, rdma, gpu_direct, gpu_staged, file_direct, file_buffered, count_ };

/// "file-direct" for path::file_direct; a constant.
constexpr const char* to_string(path p) noexcept {
    switch (p) {
    case path::tcp: return "tcp";
    case path::rdma: return "rdma";
    case path::gpu_direct: return "gpu-direct";
    case path::gpu_staged: return "gpu-staged";
    case path::file_direct: return "file-direct";
    case path::file_buffered: return "file-buffered";
    case path::count_: break;
    }
    return "unknown";
}

/// How strongly a feature is wanted: `automatic` uses it where it is there and says what it chose, `require` fails
/// with the reason where it isn't.
enum class mode : std::uint8_t { off, automatic, require };

} // namespace sluice
