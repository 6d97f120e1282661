#pragma once

#include <sluice/address.hpp>
#include <sluice/result.hpp>
#include <sluice/stream.hpp>
#include <sluice/task.hpp>

#include "net/endpoint.hpp"

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/uio.h>

namespace sluice::net {

/// All bytes of several segments, in order, whatever the kernel takes at once. The array is used up: its entries are
/// changed as bytes leave. It and the memory stay until the operation has resumed.
class [[nodiscard]] send_segments : public detail::stream_operation {
public:
    send_segments(detail::stream_state& socket, std::span<iovec> segments) noexcept;
    result<void> await_resume() const noexcept {
        if (result_ < 0) [[unlikely]] return error::from_errno(-result_);
        return {};
    }

private:
    void aim() noexcept;
    void skip(std::size_t bytes) noexcept;
    static bool step(operation& op) noexcept;
    std::span<iovec> segments_;
    msghdr message_{};
};

/// The descriptor of the next connection, or a negative errno value. What concerns only the peer is tried again.
class [[nodiscard]] accept_request : public detail::stream_operation {
public:
    explicit accept_request(detail::stream_state& socket) noexcept;
    int await_resume() const noexcept { return result_; }

private:
    static bool step(operation& op) noexcept;
};

/// 0 or the kernel's negative errno value as it is; stream_socket::connect makes sense of it.
class [[nodiscard]] connect_request : public detail::stream_operation {
public:
    connect_request(detail::stream_state& socket, const endpoint& to) noexcept;
    int await_resume() const noexcept { return result_; }

private:
    endpoint to_; // the kernel's until completion
};

/// A stream with what the providers need beyond the public one. It adds no members, so that one converts to the other.
/// The descriptor is in blocking mode: io_uring itself waits then, where a non-blocking one would give EAGAIN.
class stream_socket : public stream {
public:
    stream_socket() noexcept = default;
    explicit stream_socket(stream&& s) noexcept : stream(std::move(s)) {}
    /// Takes the descriptor over.
    static stream_socket adopt(int fd) noexcept;
    /// Errors: EAFNOSUPPORT, `condition::out_of_resources`.
    static result<stream_socket> create(int family);

    int fd() const noexcept { return state_.fd; }
    bool busy() const noexcept { return state_.receiving || state_.sending; }
    detail::stream_state& state() noexcept { return state_; }

    /// Errors name the address. After one, close the socket. Canceled by the stop token.
    task<result<void>> connect(endpoint to);
    send_segments send(std::span<iovec> segments) noexcept { return {state_, segments}; }

    // Of TCP; without effect on unix sockets.
    result<void> set_no_delay(bool on) noexcept;
    /// After about this long without a sign of life the kernel gives the peer up with ETIMEDOUT: keep-alive probes
    /// when idle, TCP_USER_TIMEOUT when data waits for its acknowledgement [tcp(7)]. At least a second.
    result<void> set_peer_timeout(std::chrono::nanoseconds t) noexcept;

    /// Ends both directions: operations in flight complete, with end of stream or EPIPE. The descriptor stays.
    void shutdown_both() noexcept;
    /// Closes so that the peer sees a reset, with what was not sent yet thrown away [socket(7) SO_LINGER].
    void reset() noexcept;
};

/// Tries the endpoints in turn. Errors: that of the last one, which names its address.
task<result<stream_socket>> connect_first(std::span<const endpoint> to);

/// A bound and listening socket. Errors name the address. A path whose listener has died is taken over.
result<stream_socket> listening_socket(const endpoint& on, const stream_listen_options& options);

} // namespace sluice::net
