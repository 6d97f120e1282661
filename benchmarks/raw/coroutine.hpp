#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace sluice::bench::raw {

/// A coroutine without an executor, a stop token, a result or a bound on the stack: what the language itself costs.
/// Frames come from the heap.
class bare_task {
public:
    struct promise_type {
        std::coroutine_handle<> continuation = std::noop_coroutine();

        bare_task get_return_object() noexcept {
            return bare_task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        struct back {
            bool await_ready() const noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) const noexcept {
                return h.promise().continuation;
            }
            void await_resume() const noexcept {}
        };
        back final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };

    bare_task(bare_task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    bare_task& operator=(bare_task&&) = delete;
    ~bare_task() {
        if (handle_) handle_.destroy();
    }

    struct awaiter {
        std::coroutine_handle<promise_type> handle;
        bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) const noexcept {
            handle.promise().continuation = parent;
            return handle;
        }
        void await_resume() const noexcept {}
    };
    awaiter operator co_await() const noexcept { return {handle_}; }

    std::coroutine_handle<> handle() const noexcept { return handle_; }
    bool done() const noexcept { return handle_.done(); }

private:
    explicit bare_task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

} // namespace sluice::bench::raw
