#pragma once

#include "examples/object_store/object_directory.hpp"
#include "examples/object_store/protocol.hpp"
#include "examples/object_store/window.hpp"

#include <sluice/connection.hpp>
#include <sluice/result.hpp>
#include <sluice/runtime.hpp>
#include <sluice/task.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace store {

struct server_options {
    std::string listen;                    ///< address
    std::uint32_t chunk_bytes = 1 << 20;   ///< at most; a multiple of 4096
    std::uint32_t slots = 8;               ///< chunks on the way per transfer, at most
    std::uint32_t clients_max = 4096;      ///< further ones are told that it is busy
    std::chrono::nanoseconds stall_timeout = std::chrono::seconds(30); ///< of a client in the middle of a transfer
};

/// What the sessions of a server share.
struct server {
    sluice::runtime& runtime;
    object_directory& objects;
    server_options options;
    std::function<void(const std::string&)> log; ///< one line, without its end
    server_stats stats{};
};

/// Listens, tells the address to `listening`, and serves clients until it is asked to stop.
sluice::task<sluice::result<void>> serve(server& s, std::function<void(const std::string&)> listening);

/// One object from the disk into a client's window, or the other way round. An error ends the connection, since nobody
/// can tell what of the exchange the client has seen; what a client may ask and not get is told by a reply.
sluice::task<sluice::result<void>> serve_get(server& s, sluice::connection& client, const request& asked, std::string key);
sluice::task<sluice::result<void>> serve_put(server& s, sluice::connection& client, const request& asked, std::string key);

/// The window that a client offered, and the layout for an object of `size_bytes` in it.
struct offered_window {
    sluice::remote_region region;
    store::layout layout;
};
/// Errors: `condition::invalid`, with the value that is out of bounds.
sluice::result<offered_window> check_window(const server& s, const request& asked, std::uint64_t size_bytes);

/// Tells the client why it doesn't get what it asked for; the connection stays.
sluice::task<sluice::result<void>> refuse(server& s, sluice::connection& client, sluice::error why);

/// Ends a transfer that has begun: tells the client why, as far as that still works, and gives the reason back.
sluice::task<sluice::result<void>> give_up(server& s, sluice::connection& client, sluice::error why);

/// Adds what a file has moved to the server's counters.
void count(server_stats& stats, const sluice::file_stats& moved) noexcept;

} // namespace store
