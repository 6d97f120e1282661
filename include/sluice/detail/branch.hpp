#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/export.hpp>
#include <sluice/stop.hpp>
#include <sluice/task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <variant>

namespace sluice::detail {

/// What a combinator holds in place of a `T`: void has no value.
template <class T>
using held = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

/// A coroutine that nobody awaits: it tells whom it concerns in its last statement, and its frame goes with its end.
struct detached {
    struct promise_type : promise_base {
        detached get_return_object() noexcept {
            handle = std::coroutine_handle<promise_type>::from_promise(*this);
            return detached{this};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
    };

    void start(executor& home, stop_token token) const noexcept {
        promise->bind(home, token);
        home.count_spawn();
        home.make_ready(*promise);
    }

    promise_type* promise;
};

/// Starts a task from within an awaiter: under the awaiting task's token, or under another one.
template <class T>
class start_task {
public:
    bool await_ready() const noexcept { return false; }
    template <sluice_promise Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) noexcept {
        promise_.inherit(parent.promise());
        if (other_token_) promise_.set_token(token_);
        return parent.promise().home().transfer_to(promise_);
    }

protected:
    explicit start_task(task<T>& work) noexcept : promise_(work.promise()) { expect_fresh(); }
    start_task(task<T>& work, stop_token token) noexcept : promise_(work.promise()), token_(token), other_token_(true) {
        expect_fresh();
    }
    void expect_fresh() const noexcept { SLUICE_EXPECTS(promise_.continuation() == nullptr, "task: awaited twice"); }

    task_promise<T>& promise_;
    stop_token token_;
    bool other_token_ = false;
};

/// `co_await ended(work)`: runs a task to its end and leaves in it what it returned or threw.
template <class T>
class [[nodiscard]] ended : public start_task<T> {
public:
    explicit ended(task<T>& work) noexcept : start_task<T>(work) {}
    ended(task<T>& work, stop_token token) noexcept : start_task<T>(work, token) {}
    void await_resume() const noexcept {}
};

/// `co_await under(work, token)`: awaits a task that obeys another stop token than the awaiting one.
template <class T>
class [[nodiscard]] under : public start_task<T> {
public:
    under(task<T>& work, stop_token token) noexcept : start_task<T>(work, token) {}
    T await_resume() { return this->promise_.take(); }
};

template <class T>
held<T> take_held(task<T>& work) {
    if constexpr (std::is_void_v<T>) {
        work.promise().take();
        return {};
    } else {
        return work.promise().take();
    }
}

/// Tasks that run side by side under one stop source, and one coroutine that waits for all of them. Lives in the frame
/// of that coroutine.
class SLUICE_EXPORT branch_group {
public:
    enum class stops_at { first_exception, first_end };

    branch_group(executor& home, stop_token parent, stops_at when) : home_(home), source_(parent), when_(when) {}
    ~branch_group() { SLUICE_EXPECTS(running_ == 0, "when_all, when_any: destroyed while their tasks run"); }
    branch_group(const branch_group&) = delete;
    branch_group& operator=(const branch_group&) = delete;

    /// Starts `work`, which must outlive the group.
    template <class T>
    void start(task<T>& work) noexcept {
        const detached branch = run(*this, work, running_);
        ++running_;
        branch.start(home_, source_.token());
    }

    class [[nodiscard]] join_operation {
    public:
        explicit join_operation(branch_group& group) noexcept : group_(group) {}
        bool await_ready() const noexcept { return group_.running_ == 0; }
        template <sluice_promise Promise>
        void await_suspend(std::coroutine_handle<Promise> h) noexcept {
            group_.waiter_ = &h.promise();
        }
        void await_resume() const noexcept {}

    private:
        branch_group& group_;
    };
    join_operation join() noexcept { return join_operation(*this); }

    /// Of the task that ended first, in the order of start().
    std::size_t first() const noexcept { return first_; }
    void rethrow_first_exception() const {
        if (exception_) std::rethrow_exception(exception_);
    }

private:
    template <class T>
    static detached run(branch_group& group, task<T>& work, std::size_t index) {
        co_await ended<T>(work);
        group.on_end(index, work.promise().exception());
    }
    void on_end(std::size_t index, std::exception_ptr exception) noexcept;

    executor& home_;
    stop_source source_;
    promise_base* waiter_ = nullptr;
    std::size_t running_ = 0;
    std::size_t first_ = 0;
    bool any_ended_ = false;
    stops_at when_;
    std::exception_ptr exception_;
};

} // namespace sluice::detail
