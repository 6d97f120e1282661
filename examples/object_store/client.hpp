#pragma once

#include "examples/object_store/protocol.hpp"
#include "examples/object_store/window.hpp"

#include <sluice/connection.hpp>
#include <sluice/file.hpp>
#include <sluice/file_status.hpp>
#include <sluice/pool.hpp>
#include <sluice/result.hpp>
#include <sluice/runtime.hpp>
#include <sluice/task.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace store {

struct client_options {
    std::uint32_t chunk_bytes = 1 << 20; ///< multiple of 4096
    std::uint32_t slots = 8;             ///< chunks on the way; the pool needs chunk_bytes * slots per client and 4 KiB
    std::chrono::nanoseconds timeout = std::chrono::seconds(60); ///< without any sign of the server
    std::uint64_t direct_from_bytes = 1 << 20; ///< files from this size on are read and written past the page cache
};

struct object_info {
    std::string key;
    std::uint64_t size_bytes = 0;
    std::uint64_t modified_ns = 0;
    std::uint32_t crc32c = 0;
};

struct object_list {
    std::vector<object_info> objects;
    sluice::result<void> complete; ///< the server's error when it had to leave some out
};

/// Whom to tell how a transfer goes; both may be empty.
struct transfer_watch {
    std::function<void(std::uint64_t bytes)> expected{}; ///< once, when the size is known
    std::function<void(std::uint64_t bytes)> moved{};
};

/// A client of an object store server: one connection, one request at a time.
///
/// Errors of all requests: what the server says, with its words; `condition::closed` when it is gone,
/// `condition::timed_out` when it gives no sign. After an error in the middle of a transfer `is_usable()` is false.
/// Keys must have passed check_key. Lifetime: the runtime outlives it; it must not go while a request is awaited. Thread rule: executor-bound.
class client {
public:
    static sluice::task<sluice::result<client>> open(sluice::runtime& runtime, std::string server,
                                                     client_options options = {});

    /// A file becomes an object, in one step, or nothing happens.
    sluice::task<sluice::result<object_info>> put(std::string file, std::string key, transfer_watch watch = {});
    /// An object becomes a file, in one step and only if its checksum is right, or nothing happens.
    sluice::task<sluice::result<object_info>> get(std::string key, std::string file, transfer_watch watch = {});
    sluice::task<sluice::result<object_info>> stat(std::string key);
    sluice::task<sluice::result<void>> remove(std::string key);
    /// Objects whose keys start with `prefix`, of at most key_bytes_max bytes; sorted.
    sluice::task<sluice::result<object_list>> list(std::string prefix);
    sluice::task<sluice::result<server_stats>> server();
    /// Waits for the server's goodbye, within the timeout too.
    sluice::task<sluice::result<void>> close();

    bool is_usable() const noexcept { return usable_ && connection_.is_open(); }
    sluice::connection_stats stats() const { return connection_.stats(); }
    sluice::path path() const noexcept { return connection_.path(); }
    /// Which provider the library took, and why.
    std::string choice() const { return connection_.choice(); }
    std::uint64_t file_bytes(sluice::path p) const noexcept {
        return p == sluice::path::file_direct ? file_direct_bytes_ : file_buffered_bytes_;
    }

private:
    struct download;
    struct upload;

    client() = default;
    sluice::task<sluice::result<void>> share_window();
    request new_request(verb what) const noexcept;
    sluice::task<sluice::result<void>> ask(request what, key_text key);
    sluice::task<sluice::result<sluice::received>> hear();
    /// The message that was received last, if it is a T; a reply that refuses is its error.
    template <class T>
    sluice::result<T> heard(const sluice::received& got) const;
    sluice::result<layout> agreed_layout(const reply& answer, std::uint64_t size_bytes) const;
    sluice::error gone(sluice::error why) const;
    void count(const sluice::file_stats& moved) noexcept;

    static sluice::task<sluice::result<void>> take_chunks(download& d);
    static sluice::task<sluice::result<void>> store_slot(download& d, std::uint64_t first);
    static sluice::task<sluice::result<void>> hear_server(upload& u);
    static sluice::task<sluice::result<void>> load_slot(upload& u, std::uint64_t first);
    sluice::task<sluice::result<void>> download_to(sluice::file& file, const reply& answer, layout shape,
                                                   const transfer_watch& watch);
    sluice::task<sluice::result<object_info>> upload_from(sluice::file& file, layout shape, const transfer_watch& watch);

    sluice::runtime* runtime_ = nullptr;
    client_options options_;
    std::string server_;
    bool usable_ = true;
    std::uint64_t file_direct_bytes_ = 0;
    std::uint64_t file_buffered_bytes_ = 0;
    // In this order: what is shared goes before the connection, the connection before the memory.
    sluice::pooled_buffer window_;
    sluice::pooled_buffer inbox_;
    sluice::connection connection_;
    sluice::shared_region shared_;
};

template <class T>
sluice::result<T> client::heard(const sluice::received& got) const {
    if (!got.immediate && got.size_bytes == sizeof(reply)) {
        reply answer;
        std::memcpy(&answer, inbox_.data(), sizeof answer);
        if (answer.code != 0) return answer.refused();
    }
    if (got.immediate || got.size_bytes != sizeof(T))
        return sluice::error(sluice::errc::protocol_error, "the server sent something unexpected; is it a sluice-store?");
    T message;
    std::memcpy(&message, inbox_.data(), sizeof message);
    return message;
}

} // namespace store
