#pragma once

#include <sluice/executor.hpp>
#include <sluice/task.hpp>

#include <exception>
#include <optional>

namespace sluice {

namespace detail {

/// The coroutine at the bottom of a tree of tasks: it ends by setting a flag, and is destroyed by whoever made it.
struct root {
    struct promise_type : promise_base {
        bool* done = nullptr;
        root get_return_object() noexcept {
            handle = std::coroutine_handle<promise_type>::from_promise(*this);
            return root{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        struct end {
            bool await_ready() const noexcept { return false; }
            void await_suspend(std::coroutine_handle<promise_type> h) const noexcept { *h.promise().done = true; }
            void await_resume() const noexcept {}
        };
        end final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};

template <class T>
root run_root(task<T>& work, std::optional<T>& value, std::exception_ptr& exception) {
    try {
        value.emplace(co_await std::move(work));
    } catch (...) {
        exception = std::current_exception();
    }
}

inline root run_root(task<void>& work, std::exception_ptr& exception) {
    try {
        co_await std::move(work);
    } catch (...) {
        exception = std::current_exception();
    }
}

inline void drive_root(executor& home, root r, stop_token token) {
    bool done = false;
    r.handle.promise().done = &done;
    r.handle.promise().bind(home, token);
    home.count_spawn();
    home.make_ready(r.handle.promise());
    home.run_until(done);
    r.handle.destroy();
}

} // namespace detail

/// Runs `work` on `home`, driving its loop on this thread, and returns what the task returns; an exception that leaves
/// the task is rethrown. Other tasks of the executor run meanwhile. Not from inside a task: there, co_await.
///
/// Lifetime: `home` must have been made on this thread. Thread rule: the executor's thread.
template <class T>
T sync_wait(executor& home, task<T> work, stop_token token = {}) {
    std::exception_ptr exception;
    if constexpr (std::is_void_v<T>) {
        detail::drive_root(home, detail::run_root(work, exception), token);
        if (exception) std::rethrow_exception(exception);
    } else {
        std::optional<T> value;
        detail::drive_root(home, detail::run_root(work, value, exception), token);
        if (exception) std::rethrow_exception(exception);
        return std::move(*value);
    }
}

} // namespace sluice
