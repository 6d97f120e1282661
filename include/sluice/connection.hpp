#pragma once

#include <sluice/address.hpp>
#include <sluice/executor.hpp>
#include <sluice/export.hpp>
#include <sluice/histogram.hpp>
#include <sluice/pool.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>
#include <sluice/transfer_operation.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace sluice {

class batch;
class connection;
class listener;

namespace detail {
class provider_connection;
class provider_listener;
class closed_awaiter;
} // namespace detail

/// Options of a connection; both ends' limits meet in the handshake, the smaller wins. Validated by connect and
/// listen, which name the field that is wrong.
struct connection_options {
    std::chrono::nanoseconds connect_timeout = std::chrono::seconds(10); ///< name, transport and handshake together; of auto://
                                                                         ///< at most 2 s of it are RDMA's
    std::chrono::nanoseconds default_deadline{0};    ///< of operations that give none; 0: none
    std::chrono::nanoseconds peer_timeout = std::chrono::seconds(20); ///< silence after which the peer is lost
    std::uint32_t lanes = 1;                 ///< sockets (tcp) or queue pairs (rdma) per connection; 1..16
    std::uint32_t operations_in_flight = 1024; ///< one-sided operations at once, further ones wait; 1..65536
    std::uint32_t receive_credits = 64;      ///< messages that may arrive before a receive is posted; 1..4096
    std::uint32_t message_bytes_max = 1 << 20; ///< largest message of send; 1..1 GiB
};

/// Options of a listener. Connections inherit `connection`.
struct listen_options {
    connection_options connection{};   ///< offered to each peer that connects
    std::uint32_t backlog = 1024;      ///< connections that wait for accept [listen(2)]
    bool reuse_port = false;           ///< several listeners (one an executor) share the port [socket(7) SO_REUSEPORT]
};

/// What a connection can do: facts of its provider and peer.
struct capabilities {
    bool remote_cpu_bypass = false;  ///< one-sided operations don't involve the peer's CPU
    bool atomics = true;             ///< fetch_add and compare_swap work
    ///@{
    /// What the handshake agreed on: the smaller of both ends' connection_options of this name.
    std::uint32_t message_bytes_max = 0;
    std::uint32_t lanes = 1;
    std::uint32_t operations_in_flight = 0;
    ///@}
};

/// Counters of one kind of operation.
struct operation_stats {
    std::uint64_t operations = 0; ///< ended well
    std::uint64_t failures = 0;   ///< ended with an error, cancellation included
    std::array<std::uint64_t, static_cast<std::size_t>(path::count_)> bytes_by_path{}; ///< payload; see bytes()
    histogram latency; ///< from co_await to completion, of those that ended well

    /// `s.read.bytes(path::tcp)`
    std::uint64_t bytes(path p) const noexcept { return bytes_by_path[static_cast<std::size_t>(p)]; }
};

/// A snapshot of a connection's counters.
struct connection_stats {
    ///@{
    /// What this end started; a write_with_immediate counts as a write.
    operation_stats read, write, atomic, send, receive;
    ///@}
    ///@{
    /// One-sided operations of the peer served here and their payload; one that was spread over several lanes counts on
    /// each. 0 over RDMA: there the device serves them, and tells nobody.
    std::uint64_t served_operations = 0;
    std::uint64_t served_bytes = 0;
    ///@}
    std::uint64_t refused_operations = 0; ///< of the peer, for key, bounds or access
    std::uint64_t copied_bytes = 0;       ///< payload that went through a staging buffer in user space
};

/// Memory shared with a peer. Revoked when it goes: the peer's later operations on it fail with
/// `condition::access_denied`, and none that was being served touches the memory after revoke() or the
/// destructor has returned.
///
/// Lifetime: the memory must outlive it. May outlive its connection. Thread rule: executor-bound.
class SLUICE_EXPORT shared_region {
public:
    shared_region() noexcept = default;
    shared_region(shared_region&& other) noexcept;
    shared_region& operator=(shared_region&& other) noexcept;
    ~shared_region();

    /// What to send to the peer.
    const remote_region& description() const noexcept { return description_; }
    /// Whether share() made it; stays true after revoke().
    explicit operator bool() const noexcept { return slot_ != nullptr; }
    /// Revokes now. Idempotent.
    void revoke() noexcept;

    struct slot; ///< of the sharing provider
private:
    friend class connection;
    shared_region(std::shared_ptr<slot> s, remote_region description) noexcept
        : slot_(std::move(s)), description_(description) {}
    std::shared_ptr<slot> slot_;
    remote_region description_;
};

namespace detail {

template <class T>
inline constexpr bool is_plain_value = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                                       !std::is_member_pointer_v<T> && !std::is_null_pointer_v<T> &&
                                       std::is_same_v<T, std::unwrap_reference_t<T>>;
template <class T, std::size_t N>
inline constexpr bool is_plain_value<std::array<T, N>> = is_plain_value<T>;
/// A range whose bytes may lie elsewhere: std::string_view, std::span, std::initializer_list.
template <class T>
inline constexpr bool is_view_like = requires(T& t) { t.data(); } || requires(T& t) { t.begin(); };
template <class T, std::size_t N>
inline constexpr bool is_view_like<std::array<T, N>> = is_view_like<T>;

/// What can travel as its own bytes: no pointers, no views; what hides in a structure it can't see.
template <class T>
concept message_value = is_plain_value<T> && !is_view_like<T> && !std::is_convertible_v<const T&, const_region_view>;

class [[nodiscard]] void_transfer : public transfer {
public:
    /// A read.
    void_transfer(provider_connection& c, operation_options options, const remote_view& from, region_view into) noexcept
        : transfer(c, transfer_kind::read, options) {
        remote = from;
        target = into;
    }
    /// A write or a send.
    void_transfer(provider_connection& c, transfer_kind what, operation_options options, const remote_view& to,
                  const_region_view from, std::uint32_t with_immediate = 0) noexcept
        : transfer(c, what, options) {
        remote = to;
        source = from;
        immediate = with_immediate;
    }
    result<void> await_resume() noexcept { return outcome(); }
};

class [[nodiscard]] value_transfer : public transfer {
public:
    value_transfer(provider_connection& c, transfer_kind what, operation_options options, const remote_view& word,
                   std::uint64_t with_operand, std::uint64_t with_expected) noexcept
        : transfer(c, what, options) {
        remote = word;
        operand = with_operand;
        expected = with_expected;
    }
    result<std::uint64_t> await_resume() noexcept {
        if (auto done = outcome(); !done) return std::move(done).error();
        return value;
    }
};

class [[nodiscard]] receive_transfer : public transfer {
public:
    receive_transfer(provider_connection& c, operation_options options, region_view into) noexcept
        : transfer(c, transfer_kind::receive, options) {
        target = into;
    }
    result<received> await_resume() noexcept {
        if (auto done = outcome(); !done) return std::move(done).error();
        received r{.size_bytes = received_bytes};
        if (has_immediate) r.immediate = immediate;
        return r;
    }
};

} // namespace detail

/// A reliable, ordered association with one peer, over whichever provider the address and the machine gave.
///
/// `read` and `write` are one-sided: they move bytes from and to memory that the peer has shared, without its program
/// taking part. All bytes or an error; never a partial success. After a failed or canceled operation the target's
/// content is unspecified. Sizes of both sides must be equal (a contract).
///
/// Any number of operations may be in flight; beyond `operations_in_flight` they wait. What is ordered with what, and
/// when bytes become visible, differs between providers: docs/memory-model.md.
///
/// Errors common to all operations: `condition::canceled`, `condition::timed_out`, `condition::closed` (this end closed,
/// the peer closed, or it was lost; the first cause is kept), `condition::protocol_error`. One-sided ones also
/// `condition::access_denied` and `condition::out_of_range`; these fail the operation, not the connection.
///
/// Lifetime: memory of an operation must stay until its co_await has resumed, which is after the provider let go of
/// it. A connection destroyed without close() is reset. It must not be destroyed while an operation on it is awaited.
/// Thread rule: executor-bound.
class SLUICE_EXPORT connection {
public:
    /// No connection: all but is_open(), assignment and destruction is a broken contract, as after a move.
    connection() noexcept;
    connection(connection&&) noexcept;
    connection& operator=(connection&&) noexcept;
    ~connection();

    explicit operator bool() const noexcept { return impl_ != nullptr; }

    /// Peer's memory -> `into`.
    [[nodiscard]] detail::void_transfer read(remote_view from, region_view into, operation_options options = {});
    /// `from` -> peer's memory. Done when the peer's memory holds the bytes.
    [[nodiscard]] detail::void_transfer write(remote_view to, const_region_view from, operation_options options = {});
    /// A write, after which one receive of the peer completes with `immediate`.
    [[nodiscard]] detail::void_transfer write_with_immediate(remote_view to, const_region_view from,
                                                             std::uint32_t immediate, operation_options options = {});
    /// Adds to an aligned 8-byte little-endian word of the peer, atomically among such operations of all connections of
    /// this kind, over tcp also with `std::atomic` accesses there; gives the value before. A view of another size or
    /// alignment is a broken contract. Errors: errc::unsupported where capabilities().atomics says no.
    [[nodiscard]] detail::value_transfer fetch_add(remote_view word, std::uint64_t delta,
                                                   operation_options options = {});
    /// Stores `desired` if the word equals `expected`; gives the value before, so it swapped if that is `expected`.
    [[nodiscard]] detail::value_transfer compare_swap(remote_view word, std::uint64_t expected, std::uint64_t desired,
                                                      operation_options options = {});
    /// A message, received by one receive() of the peer, in order. Waits while the peer has no credit, and one of more
    /// than 4096 bytes until the peer has a receive for it: when both ends send such ones before they receive, both wait,
    /// so receive in a task of its own. Done when this end's memory is free again, not when the peer has received it: a
    /// small one is copied and leaves when the executor next looks at I/O, so don't hold its thread up. Errors:
    /// errc::message_too_long.
    [[nodiscard]] detail::void_transfer send(const_region_view message, operation_options options = {});
    /// The next message, or the next immediate. A message larger than `into` fails this receive with
    /// errc::message_too_long and is gone. Errors: errc::closed when the peer has closed and all was received.
    [[nodiscard]] detail::receive_transfer receive(region_view into, operation_options options = {});

    /// Small values as messages: `send(header{...})`, `receive<header>()`; they go as they lie in memory, byte order and
    /// padding included. Pointers and views (std::string_view, std::span) don't compile: send the bytes from memory of
    /// the pool, or a structure that holds them. A remote_region goes in its encoding only when it is sent by itself; in
    /// a structure put `remote_region::encode()`, whose bytes any peer can decode().
    template <detail::message_value T>
    task<result<void>> send(T value, operation_options options = {});
    /// Errors besides those of receive(view): errc::protocol_error for a message of another size, or an immediate.
    template <detail::message_value T>
    task<result<T>> receive(operation_options options = {});

    /// Lets the peer reach `memory` with `granted` until the result goes or this connection does.
    /// Errors: `condition::invalid` (empty, or no access), `condition::closed`.
    task<result<shared_region>> share(region_view memory, access granted);

    /// Several operations with one submission and one completion: docs in batch.
    sluice::batch batch();

    /// Waits for what was started here before to leave, tells the peer, waits for its goodbye (at most
    /// `peer_timeout`), and frees the sockets. Operations still in flight end with errc::closed. Idempotent.
    task<result<void>> close();
    /// Waits until the connection is down: success when either side closed it, else why it broke.
    task<result<void>> closed();

    /// False from the first sign of its end on, whoever caused it; closed() tells why.
    bool is_open() const noexcept;
    /// Which way payload goes now.
    sluice::path path() const noexcept;
    /// Constant once it is connected.
    sluice::capabilities capabilities() const noexcept;
    /// A copy, several KiB with its histograms; counts from the handshake on.
    connection_stats stats() const;
    ///@{
    /// The peer's and our own address, "tcp://10.0.0.2:7471".
    std::string peer_address() const;
    std::string local_address() const;
    ///@}
    /// Why this provider was chosen: "tcp: no RDMA device on this machine".
    std::string choice() const;

    /// For providers and tests.
    explicit connection(std::unique_ptr<detail::provider_connection> impl) noexcept;

private:
    friend class sluice::batch;
    task<result<void>> send_bytes(std::span<const std::byte> message, operation_options options);
    task<result<std::size_t>> receive_bytes(std::span<std::byte> into, operation_options options);
    std::unique_ptr<detail::provider_connection> impl_;
};

/// Collects operations and starts them together: one submission, one completion. All are attempted; the result is the
/// first error in order of the calls. `auto b = conn.batch(); b.read(...); b.write(...); co_await b.submit();`
///
/// Lifetime: as each operation; the batch must live until submit() has resumed. Thread rule: executor-bound.
class SLUICE_EXPORT batch {
public:
    /// `conn` must stay in place until submit() has resumed.
    explicit batch(connection& conn) noexcept;
    batch(batch&&) noexcept;
    ~batch();
    ///@{
    /// Notes an operation, which starts with submit(); unequal sizes are a broken contract here already.
    void read(remote_view from, region_view into);
    void write(remote_view to, const_region_view from);
    void send(const_region_view message);
    ///@}
    /// Operations noted; submit() doesn't change it.
    std::size_t size() const noexcept;
    /// Starts all; may be called once. An empty batch succeeds.
    task<result<void>> submit(operation_options options = {});

private:
    struct entry;
    connection* connection_;
    std::vector<entry> entries_;
};

/// Takes connections in. `listener::close`, or its end, stops it; accepted connections live on.
///
/// Lifetime: outlives the tasks that await accept(): close it and let them end first. Thread rule: executor-bound;
/// connections belong to the executor that accepts them.
class SLUICE_EXPORT listener {
public:
    /// Listens nowhere: all but assignment and destruction is a broken contract, as after a move.
    listener() noexcept;
    listener(listener&&) noexcept;
    listener& operator=(listener&&) noexcept;
    ~listener();

    /// The next connection whose handshake succeeded; peers that fail it are dropped and counted, and a slow one
    /// holds nobody up. When descriptors run out it waits and goes on. Errors: errc::closed, `condition::canceled`.
    task<result<connection>> accept();
    /// Frees the port now: connections not accepted yet are dropped, tasks in accept() get errc::closed. Idempotent.
    void close() noexcept;
    /// Where it listens, with the real port.
    sluice::address address() const;
    /// Peers dropped for a failed handshake.
    std::uint64_t rejected() const noexcept;

    /// For providers.
    explicit listener(std::unique_ptr<detail::provider_listener> impl) noexcept;

private:
    std::unique_ptr<detail::provider_listener> impl_;
};

template <detail::message_value T>
task<result<void>> connection::send(T value, operation_options options) {
    if constexpr (std::is_same_v<T, remote_region>) {
        const auto bytes = value.encode();
        co_return co_await send_bytes(bytes, options);
    } else {
        co_return co_await send_bytes(std::as_bytes(std::span(&value, 1)), options);
    }
}

template <detail::message_value T>
task<result<T>> connection::receive(operation_options options) {
    static_assert(std::is_default_constructible_v<T>);
    std::array<std::byte, std::is_same_v<T, remote_region> ? remote_region::encoded_bytes : sizeof(T)> bytes{};
    auto got = co_await receive_bytes(bytes, options);
    if (!got) co_return std::move(got).error();
    if (*got != bytes.size())
        co_return error(errc::protocol_error, "receive: a message of " + std::to_string(*got) + " bytes, expected " +
                                                  std::to_string(bytes.size()));
    if constexpr (std::is_same_v<T, remote_region>) {
        co_return remote_region::decode(bytes);
    } else {
        T value;
        std::memcpy(&value, bytes.data(), sizeof value);
        co_return value;
    }
}

} // namespace sluice
