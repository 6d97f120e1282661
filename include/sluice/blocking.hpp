#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/error.hpp>
#include <sluice/export.hpp>
#include <sluice/stop.hpp>

#include <coroutine>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace sluice {

namespace detail {

/// A call for the helper threads; it lives in its awaiter.
class SLUICE_EXPORT blocking_call : public posted_node {
public:
    blocking_call(const blocking_call&) = delete;
    blocking_call& operator=(const blocking_call&) = delete;

protected:
    explicit blocking_call(void (*invoke)(blocking_call&) noexcept) noexcept : invoke_(invoke) {}
    ~blocking_call() { SLUICE_EXPECTS(!running_, "run_blocking: destroyed while its call runs on a helper thread"); }
    void begin(promise_base& waiter) noexcept;
    /// Waits in place until it doesn't run; its coroutine is then not resumed for it.
    void join() noexcept;

private:
    friend class blocking_pool;

    void (*invoke_)(blocking_call&) noexcept;
    blocking_call* next_call_ = nullptr;
    promise_base* waiter_ = nullptr;
    bool running_ = false;
};

/// `Joins`: may be destroyed while the call runs, and waits for it then.
template <class F, bool Joins = false>
class [[nodiscard]] blocking_operation : blocking_call {
    using value = std::invoke_result_t<F&>;
    static_assert(!std::is_reference_v<value>, "run_blocking: return a value or a pointer");

public:
    explicit blocking_operation(F f) : blocking_call(&blocking_operation::invoke), f_(std::move(f)) {}
    ~blocking_operation() {
        if constexpr (Joins) join();
    }

    bool await_ready() const noexcept { return false; }
    template <sluice_promise Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept {
        begin(h.promise());
    }
    value await_resume() {
        if (exception_) std::rethrow_exception(exception_);
        if constexpr (!std::is_void_v<value>) return std::move(*value_);
    }

private:
    static void invoke(blocking_call& call) noexcept {
        auto& self = static_cast<blocking_operation&>(call);
        try {
            if constexpr (std::is_void_v<value>) std::invoke(self.f_);
            else self.value_.emplace(std::invoke(self.f_));
        } catch (...) {
            self.exception_ = std::current_exception();
        }
    }

    F f_;
    std::optional<std::conditional_t<std::is_void_v<value>, std::monostate, value>> value_;
    std::exception_ptr exception_;
};

} // namespace detail

/// `co_await run_blocking(f)`: calls `f()` on a helper thread and resumes on the task's executor with what it returned
/// or threw; for calls that block and have no other form (getaddrinfo, opendir). The process has at most four such
/// threads, started when first needed; further calls wait their turn, first come first served. Nothing is allocated.
///
/// Cancellation: a call cannot be interrupted. It always runs, even under a token that is already stopped, and the task
/// waits for it. When no thread can be started (a limit of the system) the call runs in place and holds up its executor.
/// Lifetime: `f` is kept in the awaiter; what it refers to must live until it returned. `exit()` waits for calls that
/// run and drops those that wait. Thread rule: executor-bound; `f` runs on another thread, with all signals blocked.
template <class F>
    requires std::is_invocable_v<std::decay_t<F>&>
detail::blocking_operation<std::decay_t<F>> run_blocking(F&& f) {
    return detail::blocking_operation<std::decay_t<F>>(std::forward<F>(f));
}

} // namespace sluice
