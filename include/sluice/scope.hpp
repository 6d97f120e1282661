#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/export.hpp>
#include <sluice/result.hpp>
#include <sluice/stop.hpp>
#include <sluice/task.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>

namespace sluice {

/// Runs a changing number of tasks that nobody awaits one by one, and joins them before it goes:
/// `scope clients; clients.spawn(serve(...)); ... co_return co_await clients.join();`
///
/// A child starts in a later turn of the executor, and its memory goes when it ends, not at the join. Children obey the
/// scope's own stop token: request_stop() stops them, and so does a stop of the task that is in join(). A child that
/// fails does not stop the others.
///
/// Lifetime: made inside a task, and joined before it is destroyed; destroying it while children run is a broken
/// contract, also when an exception does it: what may throw between spawn() and join() stands in a try block.
/// Immovable. Thread rule: executor-bound; request_stop() may be called on any thread while the scope lives.
class SLUICE_EXPORT scope {
public:
    /// Belongs to the executor of this thread.
    scope();
    ~scope();
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

    ///@{
    /// Starts a child. Allowed at any time, by children too and while another task is in join(), which then waits for
    /// the new one as well. Its frames come from the thread's recycled ones.
    void spawn(task<void> work);
    void spawn(task<result<void>> work);
    ///@}

    ///@{
    /// Children that have not ended.
    std::size_t size() const noexcept { return running_; }
    bool empty() const noexcept { return running_ == 0; }
    ///@}

    /// Asks every child, and those still to come, to stop.
    void request_stop() noexcept;
    /// What the children obey.
    stop_token token() noexcept { return source_.token(); }

    /// `co_await s.join()`: waits until no child runs. One task at a time. The scope can be used again afterwards.
    ///
    /// Errors: the first error that a child returned since the last join; `condition::canceled` of a child counts only
    /// when the scope's own request_stop() was not called, for then it was asked for. Rethrows the first exception that
    /// left a child instead, if there is one. A stop of the joining task stops the children; they are still waited for.
    class [[nodiscard]] join_operation : detail::stop_callback_node {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            return scope_.begin_join(*this, h.promise());
        }
        result<void> await_resume() { return scope_.take_outcome(); }

    private:
        friend scope;
        explicit join_operation(scope& s) noexcept : scope_(s) {}

        scope& scope_;
        detail::promise_base* waiter_ = nullptr;
    };
    /// See join_operation.
    join_operation join() noexcept { return join_operation(*this); }

private:
    struct child;
    void on_end(std::optional<error> failure, std::exception_ptr exception) noexcept;
    bool begin_join(join_operation& join, detail::promise_base& waiter) noexcept;
    result<void> take_outcome();

    executor* home_;
    std::size_t running_ = 0;
    join_operation* join_ = nullptr;
    detail::stop_state* joiner_stop_ = nullptr;
    std::optional<error> failure_;
    std::exception_ptr exception_;
    stop_source source_;
    std::atomic<bool> stop_asked_{false};
};

} // namespace sluice
