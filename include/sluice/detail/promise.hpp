#pragma once

#include <sluice/detail/frame_allocator.hpp>
#include <sluice/detail/ready_queue.hpp>
#include <sluice/executor.hpp>
#include <sluice/stop.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>

namespace sluice::detail {

/// What travels with every coroutine: the executor it runs on, the stop token it obeys, and who awaits it.
class promise_base : public ready_node {
public:
    static void* operator new(std::size_t size) { return allocate_frame(size); }
    static void operator delete(void* frame, std::size_t size) noexcept { free_frame(frame, size); }

    executor& home() const noexcept {
        SLUICE_DEBUG_EXPECTS(executor_ != nullptr, "task: awaited outside an executor");
        return *executor_;
    }
    stop_token token() const noexcept { return token_; }
    promise_base* continuation() const noexcept { return continuation_; }

    /// Runs under `parent`: same executor, same token, and resumes it at the end.
    void inherit(promise_base& parent) noexcept {
        executor_ = parent.executor_;
        token_ = parent.token_;
        continuation_ = &parent;
    }
    void bind(executor& home, stop_token token, promise_base* continuation = nullptr) noexcept {
        executor_ = &home;
        token_ = token;
        continuation_ = continuation;
    }
    void set_token(stop_token token) noexcept { token_ = token; }

private:
    executor* executor_ = nullptr;
    stop_token token_;
    promise_base* continuation_ = nullptr;
};

/// A coroutine that sluice's awaitables can suspend: `task` and whatever else derives its promise from promise_base.
template <class Promise>
concept sluice_promise = std::derived_from<Promise, promise_base>;

} // namespace sluice::detail

namespace sluice {

/// `co_await this_executor()`: the executor that the task runs on. Never suspends.
struct this_executor {
    bool await_ready() const noexcept { return false; }
    template <detail::sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        home_ = &h.promise().home();
        return false;
    }
    executor& await_resume() const noexcept { return *home_; }

private:
    executor* home_ = nullptr;
};

/// `co_await this_stop_token()`: the token that the task runs under. Never suspends.
struct this_stop_token {
    bool await_ready() const noexcept { return false; }
    template <detail::sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        token_ = h.promise().token();
        return false;
    }
    stop_token await_resume() const noexcept { return token_; }

private:
    stop_token token_;
};

/// `co_await yield()`: lets everything else that is ready run first, and I/O be looked at. A requested stop does not
/// end it early; there is nothing to end.
struct [[nodiscard]] yield {
    bool await_ready() const noexcept { return false; }
    template <detail::sluice_promise Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept {
        h.promise().home().make_ready(h.promise());
    }
    void await_resume() const noexcept {}
};

} // namespace sluice
