#pragma once

#include <sluice/address.hpp>
#include <sluice/connection.hpp>
#include <sluice/executor.hpp>
#include <sluice/export.hpp>
#include <sluice/pool.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

/// How a runtime is set up. Validated by `runtime::create`, which names the field that is wrong.
struct runtime_options {
    std::uint32_t executors = 1;                  ///< threads with a ring each; 0: one per CPU that the process may use
    std::size_t pool_bytes = std::size_t{64} << 20; ///< registered memory, see pool_options
    std::size_t receive_reserve_bytes = 0;        ///< see pool_options
    mode huge_pages = mode::automatic;            ///< see pool_options
    mode rdma = mode::automatic;                  ///< `require` fails with the reason where there is none, `off`
                                                  ///< refuses rdma:// addresses too
    /// RDMA devices that connections may use, the preferred first; all when empty. A list such as "mlx5_0,mlx5_1:2": a
    /// device, device:port, device:port:gid (the index of a GID, whose address is used), an IP address or netdev of a
    /// port, `*`; and `!` before what is not wanted. Empty: the environment's SLUICE_RDMA_USE, read by create().
    std::string rdma_devices{};
    mode gpu_direct = mode::automatic;            ///< likewise
    bool pin = true;                              ///< each executor to a CPU of its own, where there are enough
    executor_options executor{};                  ///< of every executor; a `cpu` given here goes before `pin`
};

/// N executors, one memory pool registered with all of them, and the providers. The first object of a program.
///
/// Lifetime: outlives every connection, buffer and task made from it; its destructor stops and joins the executors.
/// Thread rule: made and destroyed off its executors; connect and listen run on the calling task's executor.
class SLUICE_EXPORT runtime {
public:
    /// Starts the executors and the pool. Errors: `condition::invalid` (an option, by name),
    /// `condition::unsupported` (a required feature is missing: says why), `condition::out_of_resources`.
    static result<runtime> create(const runtime_options& options = {});
    runtime(runtime&&) noexcept;
    runtime& operator=(runtime&&) noexcept;
    ~runtime();

    /// Any thread; lives as long as the runtime.
    memory_pool& pool() noexcept;
    /// How many there are; constant.
    std::uint32_t executors() const noexcept;
    /// 0..executors()-1, else a broken contract. Any thread; what may be done there is the executor's thread rule.
    executor& executor_at(std::uint32_t index) noexcept;

    ///@{
    /// Connects to a listener. Where several providers could, `connection::choice()` says which was taken and why.
    /// Errors: `condition::invalid` (address or options), `condition::not_found` (name), ECONNREFUSED,
    /// EHOSTUNREACH, `condition::timed_out`, `condition::protocol_error` (the other side isn't sluice),
    /// errc::version_mismatch, `condition::unsupported` (scheme not available here).
    task<result<connection>> connect(std::string_view to, connection_options options = {});
    task<result<connection>> connect(address to, connection_options options = {});
    ///@}
    ///@{
    /// Listens for connections, on the executor of the calling task.
    /// Errors: `condition::invalid`, `condition::busy` (address in use), `condition::access_denied`.
    task<result<listener>> listen(std::string_view on, listen_options options = {});
    task<result<listener>> listen(address on, listen_options options = {});
    ///@}

    /// Runs `work` on executor `index` and blocks until it has ended; returns or rethrows what it did. On a thread that
    /// has an executor, this runtime's or its own, it is a broken contract.
    template <class T>
    T sync_wait(task<T> work, std::uint32_t index = 0);

    struct impl;
    /// For the library.
    impl& internals() noexcept { return *impl_; }

private:
    explicit runtime(std::unique_ptr<impl> made) noexcept;
    std::unique_ptr<impl> impl_;
};

/// The whole of a program: makes a runtime, runs `app(runtime&)` on executor 0, and returns its exit status. A runtime
/// that can't start is reported on standard error and gives 1; so does an exception.
template <class App>
    requires std::same_as<std::invoke_result_t<App&, runtime&>, task<int>>
int run(App app, const runtime_options& options = {}) {
    auto made = runtime::create(options);
    if (!made) {
        std::fprintf(stderr, "sluice: %s\n", made.error().message().c_str());
        return 1;
    }
    try {
        return made->sync_wait(app(*made));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "sluice: %s\n", e.what());
        return 1;
    }
}

namespace detail {

/// Carries a root coroutine to an executor's thread and its end back to the waiting thread.
struct SLUICE_EXPORT remote_root : posted_node {
    promise_base* root = nullptr;
    executor* home = nullptr;
    void start_and_wait();
    void finished() noexcept;

private:
    std::atomic<std::uint32_t> ended_{0}; // futex word
};

template <class T>
struct remote_root_coroutine {
    struct promise_type : promise_base {
        remote_root* owner = nullptr;
        remote_root_coroutine get_return_object() noexcept {
            handle = std::coroutine_handle<promise_type>::from_promise(*this);
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        struct end {
            bool await_ready() const noexcept { return false; }
            void await_suspend(std::coroutine_handle<promise_type> h) const noexcept { h.promise().owner->finished(); }
            void await_resume() const noexcept {}
        };
        end final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};

template <class T, class Slot>
remote_root_coroutine<T> run_remote_root(task<T> work, Slot& value, std::exception_ptr& exception) {
    try {
        if constexpr (std::is_void_v<T>) co_await std::move(work);
        else value.emplace(co_await std::move(work));
    } catch (...) {
        exception = std::current_exception();
    }
}

} // namespace detail

template <class T>
T runtime::sync_wait(task<T> work, std::uint32_t index) {
    std::exception_ptr exception;
    std::optional<std::conditional_t<std::is_void_v<T>, char, T>> value;
    auto root = detail::run_remote_root<T>(std::move(work), value, exception);
    detail::remote_root carrier;
    carrier.root = &root.handle.promise();
    carrier.home = &executor_at(index);
    root.handle.promise().owner = &carrier;
    carrier.start_and_wait();
    root.handle.destroy();
    if (exception) std::rethrow_exception(exception);
    if constexpr (!std::is_void_v<T>) return std::move(*value);
}

} // namespace sluice
