#pragma once

#include <sluice/operation.hpp>
#include <sluice/task.hpp>

#include "net/wire.hpp"
#include "tests/net/tcp_pair.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cerrno>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <vector>

namespace sluice::testing {

/// The other end of a connection, played by hand: it sends and receives frames when the test says so, so that an
/// operation can be held at any stage.
class raw_peer {
public:
    explicit raw_peer(detail::unique_fd fd) noexcept : fd_(std::move(fd)) {}

    int fd() const noexcept { return fd_.get(); }
    void close() noexcept { fd_.reset(); }

    task<void> send_bytes(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const auto sent = ::send(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent > 0) {
                bytes = bytes.subspan(static_cast<std::size_t>(sent));
                continue;
            }
            REQUIRE((errno == EAGAIN || errno == EINTR));
            auto ready = co_await readiness(fd(), POLLOUT);
            REQUIRE(ready);
        }
    }
    task<void> send(net::frame f, std::span<const std::byte> bytes = {}) {
        f.payload_bytes = static_cast<std::uint32_t>(bytes.size());
        co_await send_header(f);
        co_await send_bytes(bytes);
    }
    /// Only the header; its payload follows by send_bytes.
    task<void> send_header(net::frame f) {
        std::array<std::byte, net::frame_header_bytes> header{};
        net::encode(f, header);
        co_await send_bytes(header);
    }

    task<void> receive_bytes(std::span<std::byte> into) {
        while (!into.empty()) {
            const auto got = ::recv(fd(), into.data(), into.size(), MSG_DONTWAIT);
            REQUIRE(got != 0);
            if (got > 0) {
                into = into.subspan(static_cast<std::size_t>(got));
                continue;
            }
            REQUIRE((errno == EAGAIN || errno == EINTR));
            auto ready = co_await readiness(fd(), POLLIN);
            REQUIRE(ready);
        }
    }
    /// The next frame; its payload is in `payload`.
    task<net::frame> receive() {
        std::array<std::byte, net::frame_header_bytes> header{};
        co_await receive_bytes(header);
        auto f = net::decode(header);
        REQUIRE(f);
        payload.resize(f->payload_bytes);
        co_await receive_bytes(payload);
        co_return *f;
    }
    task<net::frame> receive(net::frame_type expected) {
        net::frame f = co_await receive();
        INFO("frame " << to_string(f.type) << ", expected " << to_string(expected));
        REQUIRE(f.type == expected);
        co_return f;
    }

    std::vector<std::byte> payload;

private:
    detail::unique_fd fd_;
};

struct half_pair {
    connection conn;
    raw_peer peer;

    explicit half_pair(executor& home, const pair_options& o = {}) : half_pair(home, o, socket_pair()) {}

private:
    half_pair(executor& home, const pair_options& o, std::pair<detail::unique_fd, detail::unique_fd> sockets)
        : peer(std::move(sockets.second)) {
        std::vector<detail::unique_fd> one;
        one.push_back(std::move(sockets.first));
        conn = make_connection(home, o, std::move(one));
    }
};

/// A remote region that only a raw peer knows.
inline remote_region made_up(std::size_t size_bytes) {
    return {.address = 0x10000, .size_bytes = size_bytes, .key = 12345, .owner = 4711, .generation = 1,
            .granted = all_access};
}

/// Runs an operation beside the test, and keeps what it gives.
template <class T>
class beside {
public:
    explicit beside(task<T> work) : work_(std::move(work)) {}
    task<void> run() { outcome.emplace(co_await std::move(work_)); }
    std::optional<T> outcome;

private:
    task<T> work_;
};

inline task<result<void>> do_read(connection& c, remote_view from, region_view into, operation_options o = {}) {
    co_return co_await c.read(from, into, o);
}
inline task<result<void>> do_write(connection& c, remote_view to, const_region_view from, operation_options o = {}) {
    co_return co_await c.write(to, from, o);
}
inline task<result<void>> do_send(connection& c, const_region_view message, operation_options o = {}) {
    co_return co_await c.send(message, o);
}
inline task<result<received>> do_receive(connection& c, region_view into, operation_options o = {}) {
    co_return co_await c.receive(into, o);
}

/// Waits, turn by turn, until something has happened.
template <class Happened>
task<void> until(Happened happened) {
    while (!happened()) co_await yield();
}

} // namespace sluice::testing
