#pragma once

#include <sluice/address.hpp>
#include <sluice/contract.hpp>
#include <sluice/export.hpp>
#include <sluice/operation.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice {

namespace detail {

/// A stream socket's descriptor, and which directions have an operation that holds it.
struct stream_state {
    int fd = -1;
    bool receiving = false;
    bool sending = false;
};

/// The common part of the operations on a socket: one direction is taken from construction to destruction.
class SLUICE_EXPORT stream_operation : public operation {
public:
    /// Bytes moved so far, also after a cancel or an error: those are taken from, or in, the stream.
    std::size_t progress_bytes() const noexcept { return progress_; }
    /// Asks the kernel to let go, without a stop token; the operation still completes once. No effect unless in
    /// flight. `home` is the executor that it runs on.
    void abandon(executor& home) noexcept {
        if (!in_flight()) return;
        cancel_requested_ = true;
        home.cancel(*this);
    }

protected:
    stream_operation(bool& direction, step_function step, const char* busy) noexcept
        : operation(step), direction_(direction) {
        SLUICE_EXPECTS(!direction_, busy);
        direction_ = true;
    }
    ~stream_operation() { direction_ = false; }

    std::size_t progress_ = 0;

private:
    bool& direction_;
};

class [[nodiscard]] stream_receive : public stream_operation {
public:
    SLUICE_EXPORT stream_receive(stream_state& socket, std::span<std::byte> into) noexcept;
    result<std::size_t> await_resume() const noexcept {
        if (result_ < 0) [[unlikely]] return error::from_errno(-result_);
        return progress_;
    }

private:
    static bool step(operation& op) noexcept;
};

class [[nodiscard]] stream_receive_exactly : public stream_operation {
public:
    SLUICE_EXPORT stream_receive_exactly(stream_state& socket, std::span<std::byte> into) noexcept;
    result<void> await_resume() const noexcept {
        if (result_ < 0) [[unlikely]] return error::from_errno(-result_);
        if (progress_ != into_.size()) [[unlikely]] return errc::end_of_file;
        return {};
    }

private:
    void aim() noexcept;
    static bool step(operation& op) noexcept;
    std::span<std::byte> into_;
};

class [[nodiscard]] stream_send : public stream_operation {
public:
    SLUICE_EXPORT stream_send(stream_state& socket, std::span<const std::byte> from) noexcept;
    result<void> await_resume() const noexcept {
        if (result_ < 0) [[unlikely]] return error::from_errno(-result_);
        return {};
    }

private:
    void aim() noexcept;
    static bool step(operation& op) noexcept;
    std::span<const std::byte> from_;
};

} // namespace detail

/// Options of a stream; a unix socket ignores them.
struct stream_options {
    bool no_delay = true; ///< small writes leave at once [tcp(7) TCP_NODELAY]
};

/// A byte stream over TCP or a unix socket: the bare thing, for a program's own control protocol. One read and one
/// write may be in flight at once; a second of either is a broken contract, since bytes of two would mix.
///
/// Errors: `condition::canceled`; `condition::closed` (reset by the peer, or it has stopped reading).
/// Lifetime: not moved, closed or destroyed while an operation on it is awaited (a contract); memory handed to one
/// stays until it has resumed. Thread rule: executor-bound.
class SLUICE_EXPORT stream {
public:
    stream() noexcept = default;
    stream(stream&& other) noexcept;
    stream& operator=(stream&& other) noexcept;
    ~stream() { close(); }

    /// Connects to the first address of `to` that answers. The time is the kernel's (minutes): use sluice::timeout.
    /// Errors name the address: `condition::not_found` (name), ECONNREFUSED, EHOSTUNREACH, `condition::invalid`.
    static task<result<stream>> connect(address to, stream_options options = {});

    explicit operator bool() const noexcept { return state_.fd >= 0; }

    /// What has arrived, at least one byte and at most `into`, which must not be empty; 0 when the peer has ended its
    /// side.
    detail::stream_receive read_some(std::span<std::byte> into) noexcept { return {state_, into}; }
    /// Fills `into`. Errors: errc::end_of_file when the stream ends before.
    detail::stream_receive_exactly read(std::span<std::byte> into) noexcept { return {state_, into}; }
    /// All of `from`; done when the kernel has taken it, not when it has arrived.
    detail::stream_send write_all(std::span<const std::byte> from) noexcept { return {state_, from}; }

    /// Ends this side: the peer reads what was written, then end of stream. A peer that went first is no error.
    result<void> shutdown_send() noexcept;
    /// Closes now. Idempotent.
    void close() noexcept;

    ///@{
    /// Of the two ends; names are given as numbers. Errors: EBADF when closed, ENOTCONN.
    result<address> local_address() const;
    result<address> peer_address() const;
    ///@}
    /// The descriptor, still owned by the stream; -1 when it is closed.
    int native_handle() const noexcept { return state_.fd; }

protected:
    /// Takes over a connected socket.
    explicit stream(int fd) noexcept : state_{.fd = fd} {}
    detail::stream_state state_; ///< operations in flight point here
};

/// Options of a stream listener.
struct stream_listen_options {
    std::uint32_t backlog = 1024; ///< connections that wait for accept; the kernel caps it at somaxconn [listen(2)]
    bool reuse_port = false;      ///< several listeners share the port, each gets a part of the peers [socket(7)]
    stream_options accepted{};    ///< of the accepted streams
};

/// Accepts streams.
///
/// Lifetime: as stream. A unix socket's path is removed when its listener goes. Thread rule: executor-bound.
class SLUICE_EXPORT stream_listener {
public:
    stream_listener() noexcept = default;
    stream_listener(stream_listener&& other) noexcept;
    stream_listener& operator=(stream_listener&& other) noexcept;
    ~stream_listener() { close(); }

    /// Listens on the first address of `on` that can be bound; `[::]` takes IPv4 too. Errors name the address:
    /// `condition::busy` (in use), `condition::access_denied`, `condition::invalid`, `condition::not_found`.
    static task<result<stream_listener>> listen(address on, stream_listen_options options = {});

    /// The next stream. When descriptors or memory run out it waits, with growing pauses up to a quarter of a second,
    /// and goes on; a peer that gave up meanwhile is skipped. Errors: `condition::canceled`.
    task<result<stream>> accept();
    /// Not while accept() is awaited (a contract): stop that task first. Idempotent.
    void close() noexcept;
    /// Where it listens, with the real port.
    sluice::address address() const { return address_; }
    explicit operator bool() const noexcept { return state_.fd >= 0; }

private:
    detail::stream_state state_;
    sluice::address address_;
    stream_listen_options options_;
};

} // namespace sluice
