#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/export.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/sleep.hpp>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <optional>

namespace sluice {

/// Options of one operation on a connection.
struct operation_options {
    /// Time until the operation must be done, from when it is made; 0: the connection's default; a negative one has
    /// passed already. Passing it gives
    /// errc::deadline_exceeded. On tcp only the operation fails; on rdma the connection does too, since a work request
    /// can't be withdrawn.
    std::chrono::nanoseconds deadline{0};
};

/// What a receive got.
struct received {
    std::size_t size_bytes = 0;                ///< of the message, or of the write that brought the immediate
    std::optional<std::uint32_t> immediate{}; ///< set for write_with_immediate: then the bytes lie in shared memory
};

namespace detail {

class provider_connection;

enum class transfer_kind : std::uint8_t {
    read,
    write,
    write_with_immediate,
    fetch_add,
    compare_swap,
    send,
    receive,
};
inline constexpr std::size_t transfer_kind_count = 7;
SLUICE_EXPORT const char* to_string(transfer_kind kind) noexcept;

/// One operation on a connection, in the awaiting frame: what every provider is handed. It completes exactly once, by
/// complete() on the connection's executor, after the provider has let go of the memory.
class SLUICE_EXPORT transfer : public ready_node {
public:
    transfer(const transfer&) = delete;
    transfer& operator=(const transfer&) = delete;

    // what is asked; constant once started
    transfer_kind kind;
    remote_view remote;
    const_region_view source;     ///< write, send
    region_view target;           ///< read, receive
    std::uint64_t operand = 0;    ///< fetch_add: what is added; compare_swap: what is stored
    std::uint64_t expected = 0;   ///< compare_swap
    std::uint32_t immediate = 0;

    // the provider's own: links, sequence numbers
    transfer* next = nullptr;
    transfer* previous = nullptr;
    std::uint64_t id = 0;
    std::uint64_t progress_bytes = 0;
    std::uint32_t phase = 0;

    // what came out
    std::uint64_t value = 0;        ///< atomics: the value before
    std::size_t received_bytes = 0; ///< receive
    bool has_immediate = false;

    std::chrono::steady_clock::time_point started;
    bool in_flight() const noexcept { return in_flight_; }

    /// Ends the operation; an error of code 0 is success too. Only once. Executor thread; resumes later, never inline.
    void complete() noexcept;
    void complete(error e) noexcept;

    bool await_ready() const noexcept { return false; }
    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return begin(h.promise());
    }
    /// Starts it; `waiter` is resumed at the end. False when it has ended already, and nobody will be resumed.
    bool begin(promise_base& waiter) noexcept;

protected:
    transfer(provider_connection& connection, transfer_kind what, operation_options options) noexcept;
    ~transfer();
    result<void> outcome() noexcept {
        if (failed_) return std::move(error_);
        return {};
    }

private:
    struct deadline_timer : timer_node {
        transfer* owner = nullptr;
    };
    struct stop_hook : stop_callback_node {
        transfer* owner = nullptr;
    };
    void let_go() noexcept;
    static void on_deadline(timer_node& node) noexcept;
    static void on_stop(stop_callback_node& node) noexcept;

    provider_connection* connection_;
    executor* executor_ = nullptr;
    stop_state* stop_state_ = nullptr;
    stop_hook stop_hook_;
    deadline_timer timer_;
    error error_{std::error_code{}};
    bool failed_ = false;
    bool in_flight_ = false;
    bool begun_ = false;
    bool starting_ = false; // inside begin(): what ends here need not be resumed
};

} // namespace detail

} // namespace sluice
