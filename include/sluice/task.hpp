#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/promise.hpp>

#include <coroutine>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace sluice {

template <class T = void>
class task;

namespace detail {

/// Resumes whoever awaits, through the executor's budget.
struct final_awaiter {
    bool await_ready() const noexcept { return false; }
    template <sluice_promise Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) noexcept {
        promise_base& promise = h.promise();
        return promise.home().transfer_to(*promise.continuation());
    }
    void await_resume() const noexcept {}
};

template <class T>
class task_promise : public promise_base {
public:
    ~task_promise() {
        if (outcome_ == outcome::value) std::destroy_at(std::addressof(value_));
        else if (outcome_ == outcome::exception) std::destroy_at(std::addressof(exception_));
    }
    task_promise() noexcept {}
    task<T> get_return_object() noexcept;
    std::suspend_always initial_suspend() const noexcept { return {}; }
    final_awaiter final_suspend() const noexcept { return {}; }

    template <class U = T>
        requires std::is_constructible_v<T, U>
    void return_value(U&& value) noexcept(std::is_nothrow_constructible_v<T, U>) {
        std::construct_at(std::addressof(value_), std::forward<U>(value));
        outcome_ = outcome::value;
    }
    void unhandled_exception() noexcept {
        std::construct_at(std::addressof(exception_), std::current_exception());
        outcome_ = outcome::exception;
    }
    T take() {
        SLUICE_DEBUG_EXPECTS(outcome_ != outcome::none, "task: its result was asked for before it ended");
        if (outcome_ == outcome::exception) std::rethrow_exception(std::move(exception_));
        return std::move(value_);
    }
    /// What it threw, or null.
    std::exception_ptr exception() const noexcept {
        return outcome_ == outcome::exception ? exception_ : std::exception_ptr();
    }

private:
    enum class outcome : unsigned char { none, value, exception };
    union {
        T value_;
        std::exception_ptr exception_;
    };
    outcome outcome_ = outcome::none;
};

template <>
class task_promise<void> : public promise_base {
public:
    task<void> get_return_object() noexcept;
    std::suspend_always initial_suspend() const noexcept { return {}; }
    final_awaiter final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { exception_ = std::current_exception(); }
    void take() {
        if (exception_) std::rethrow_exception(std::move(exception_));
    }
    /// What it threw, or null.
    std::exception_ptr exception() const noexcept { return exception_; }

private:
    std::exception_ptr exception_;
};

} // namespace detail

/// A coroutine that computes a `T`. Lazy: it starts when it is awaited (or spawned), runs on the awaiting task's
/// executor under its stop token, and may be awaited once. An exception that leaves it is rethrown by `co_await`.
///
/// Lifetime: owns its frame; parameters are kept in the frame, so pass by value what must live on. Destroying a task
/// that has not started or has ended is fine; destroying one that is suspended inside an operation is a broken
/// contract. Thread rule: executor-bound once started.
template <class T>
class [[nodiscard]] task {
public:
    ///@{
    /// What co_await gives, and what the compiler needs of a coroutine.
    using value_type = T;
    using promise_type = detail::task_promise<T>;
    ///@}

    task() noexcept = default;
    task(task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    task& operator=(task&& other) noexcept {
        task old(std::move(*this));
        handle_ = std::exchange(other.handle_, nullptr);
        return *this;
    }
    ~task() {
        if (handle_) handle_.destroy();
    }

    explicit operator bool() const noexcept { return handle_ != nullptr; }

    /// Refers to the frame, which stays owned by the task.
    class [[nodiscard]] awaiter {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) noexcept {
            handle_.promise().inherit(parent.promise());
            return parent.promise().home().transfer_to(handle_.promise());
        }
        T await_resume() { return handle_.promise().take(); }

    private:
        friend task;
        explicit awaiter(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
        std::coroutine_handle<promise_type> handle_;
    };

    awaiter operator co_await() && noexcept {
        SLUICE_EXPECTS(handle_ != nullptr, "task: awaited when empty or moved from");
        SLUICE_EXPECTS(handle_.promise().continuation() == nullptr, "task: awaited twice");
        return awaiter(handle_);
    }

    /// For combinators: the promise, which stays owned by this task.
    promise_type& promise() const noexcept {
        SLUICE_EXPECTS(handle_ != nullptr, "task: awaited when empty or moved from");
        return handle_.promise();
    }

private:
    friend promise_type;
    explicit task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

namespace detail {

template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
    const auto self = std::coroutine_handle<task_promise>::from_promise(*this);
    handle = self;
    return task<T>(self);
}

inline task<void> task_promise<void>::get_return_object() noexcept {
    const auto self = std::coroutine_handle<task_promise>::from_promise(*this);
    handle = self;
    return task<void>(self);
}

} // namespace detail

} // namespace sluice
