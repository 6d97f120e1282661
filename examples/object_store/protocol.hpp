#pragma once

// What client and server of the object store say to each other. The README beside this file shows the order of the
// messages. All of them are plain structs of fixed size, little-endian, without padding; bulk data never travels in a
// message but by one-sided reads and writes of the client's window.

#include <sluice/contract.hpp>
#include <sluice/error.hpp>
#include <sluice/region.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace store {

static_assert(std::endian::native == std::endian::little, "the messages are little-endian, as they lie in memory");

inline constexpr std::uint32_t protocol_magic = 0x31534f53; // "SOS1"
inline constexpr std::size_t key_bytes_max = 512;
inline constexpr std::size_t text_bytes_max = 480;
/// Chunks are multiples of this, so that every one of them can go through direct I/O.
inline constexpr std::uint32_t chunk_unit_bytes = 4096;
inline constexpr std::uint32_t chunk_bytes_max = 64 << 20;
inline constexpr std::uint32_t slots_max = 64;
/// The largest message of the protocol; the limit that both ends ask of their connection.
inline constexpr std::uint32_t message_bytes_max = 1024;

enum class verb : std::uint32_t { get = 1, put, stat, list, remove, server };

/// Client to server: starts everything. A key_text follows it; apart, so that a server that waits for the next request of
/// many clients holds little for each.
struct request {
    std::uint32_t magic = protocol_magic;
    verb what = verb::get;
    std::uint64_t size_bytes = 0;   ///< put: of the object
    std::uint32_t chunk_bytes = 0;  ///< get, put: size of a slot of the window
    std::uint32_t slots = 0;        ///< get, put: slots of the window
    std::array<std::byte, sluice::remote_region::encoded_bytes> window{}; ///< get, put: the client's shared memory
};
static_assert(sizeof(request) == 64 && std::is_trivially_copyable_v<request>);

/// Client to server: which object; list: the start of the keys; server: empty.
struct key_text {
    std::uint32_t bytes = 0;
    std::array<char, key_bytes_max> text{};

    key_text() = default;
    /// At most key_bytes_max bytes: a key that was cut would name another object.
    explicit key_text(std::string_view key) noexcept : bytes(static_cast<std::uint32_t>(key.size())) {
        SLUICE_EXPECTS(key.size() <= key_bytes_max, "object store: a key or prefix of more than 512 bytes was not refused");
        std::ranges::copy(key, text.begin());
    }
    std::string_view view() const noexcept { return {text.data(), std::min<std::size_t>(bytes, text.size())}; }
};
static_assert(sizeof(key_text) == 516 && std::is_trivially_copyable_v<key_text>);

/// Both ways, while an object moves: how many chunks, from the first on, have got this far. Each tells of
/// more than the one before, or breaks the protocol: so who stands still is seen to.
struct progress {
    enum class kind : std::uint32_t {
        ready,    ///< client, put: these chunks lie in the window
        consumed, ///< client, get: written to its file; server, put: read from the window
        finished, ///< client, put: that was all, and `crc32c` is its checksum
    };
    kind what = kind::ready;
    std::uint32_t crc32c = 0;
    std::uint64_t chunks = 0;
};
static_assert(sizeof(progress) == 16);

/// Server to client: answers a request; for put twice, first that the data may come, then that it is safe.
struct reply {
    std::int32_t code = 0;          ///< 0: well; an errno value of Linux; below 0: the negative of a sluice::errc
    std::uint32_t crc32c = 0;       ///< of the object
    std::uint64_t size_bytes = 0;   ///< of the object; list: how many entries came before
    std::uint64_t modified_ns = 0;  ///< since 1970, of the object
    std::uint32_t chunk_bytes = 0;  ///< what the server uses, at most what the client offered
    std::uint32_t slots = 0;
    std::uint32_t text_bytes = 0;
    std::array<char, text_bytes_max> text{}; ///< with a code: what it is about, for people
    std::uint32_t reserved = 0;

    static reply refusal(const sluice::error& why) noexcept {
        reply no;
        const std::error_code c = why.code();
        no.code = c.category() == sluice::errc_category() ? -c.value() : c.value();
        const std::string_view words = why.detail();
        no.text_bytes = static_cast<std::uint32_t>(std::min(words.size(), no.text.size()));
        std::copy_n(words.begin(), no.text_bytes, no.text.begin());
        return no;
    }
    /// The error that it carries; only with a code.
    sluice::error refused() const {
        const std::string_view words(text.data(), std::min<std::size_t>(text_bytes, text.size()));
        if (code < 0) return {static_cast<sluice::errc>(-code), words};
        return sluice::error::from_errno(code, words);
    }
};
static_assert(sizeof(reply) == 520 && std::is_trivially_copyable_v<reply>);

/// Server to client, list: one object.
struct entry {
    std::uint64_t size_bytes = 0;
    std::uint64_t modified_ns = 0;
    std::uint32_t key_bytes = 0;
    std::array<char, key_bytes_max> key{};
    std::uint32_t reserved = 0;

    std::string_view key_view() const noexcept {
        return {key.data(), std::min<std::size_t>(key_bytes, key.size())};
    }
};
static_assert(sizeof(entry) == 536 && std::is_trivially_copyable_v<entry>);

/// Server to client, server: its counters since it started.
struct server_stats {
    std::uint64_t clients = 0; ///< connected now
    std::uint64_t clients_total = 0;
    std::uint64_t puts = 0, gets = 0, failures = 0;
    std::uint64_t tcp_bytes = 0;  ///< payload of objects, as is the next
    std::uint64_t rdma_bytes = 0;
    std::uint64_t file_direct_bytes = 0;
    std::uint64_t file_buffered_bytes = 0;
    std::uint64_t pool_bytes = 0, pool_peak_bytes = 0, pool_waits = 0;
};
static_assert(sizeof(server_stats) == 96);

inline constexpr std::uint64_t chunk_count(std::uint64_t size_bytes, std::uint32_t chunk_bytes) noexcept {
    return size_bytes / chunk_bytes + (size_bytes % chunk_bytes != 0);
}
/// Bytes of chunk `index`; the last one may be shorter.
inline constexpr std::uint32_t chunk_size(std::uint64_t size_bytes, std::uint32_t chunk_bytes,
                                          std::uint64_t index) noexcept {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_bytes, size_bytes - index * chunk_bytes));
}
inline constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) noexcept {
    return (n + unit - 1) / unit * unit;
}

} // namespace store
