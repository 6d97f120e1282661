#pragma once

#include <sluice/detail/branch.hpp>
#include <sluice/executor.hpp>
#include <sluice/export.hpp>
#include <sluice/stop.hpp>
#include <sluice/task.hpp>

#include <coroutine>
#include <optional>
#include <utility>

namespace sluice {

namespace detail {

/// A task that runs on another executor than the coroutine that waits for it. Every hand-over is a post, which also
/// orders memory; each member belongs to one thread at a time, so there is no other synchronisation.
class SLUICE_EXPORT remote_call : stop_callback_node {
public:
    remote_call(const remote_call&) = delete;
    remote_call& operator=(const remote_call&) = delete;

protected:
    remote_call(executor& other, detached (*make)(remote_call&)) noexcept;
    ~remote_call() { SLUICE_EXPECTS(awaited_ == 0, "on: destroyed while its task runs on the other executor"); }

    // waiting coroutine's thread
    void begin(promise_base& waiter) noexcept;
    // the other executor's thread; the call may be gone when this returns
    void done() noexcept;

private:
    struct node : posted_node {
        remote_call* call = nullptr;
    };
    static void start_there(posted_node& posted) noexcept;
    static void stop_there(posted_node& posted) noexcept;
    static void back_home(posted_node& posted) noexcept;

    // constant while it runs
    executor& other_;
    executor* home_ = nullptr;
    promise_base* waiter_ = nullptr;
    detached (*make_)(remote_call&);
    bool stopped_before_ = false;

    // home thread only
    stop_state* stop_state_ = nullptr;
    int awaited_ = 0; // posts that have not come back

    // the other thread only
    std::optional<stop_source> source_;

    // where they are posted to, or come from
    node work_node_;
    node stop_node_;
};

template <class T>
class [[nodiscard]] remote_task : remote_call {
public:
    remote_task(executor& other, task<T>& work) noexcept : remote_call(other, &make), work_(work) {}
    bool await_ready() const noexcept { return false; }
    template <sluice_promise Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept {
        begin(h.promise());
    }
    void await_resume() const noexcept {}

private:
    static detached make(remote_call& call) { return run(static_cast<remote_task&>(call)); }
    static detached run(remote_task& self) {
        co_await ended<T>(self.work_);
        co_await yield(); // so that the task's last function has left this stack before its frame goes on the other thread
        self.done();
    }

    task<T>& work_;
};

} // namespace detail

/// `co_await on(other, work())`: runs a task on another executor, which must be running, and resumes on this one with
/// what it returned or threw. What the caller wrote before is visible to the task, and the reverse.
///
/// A stop of the awaiting task is forwarded; the task is waited for all the same. If `other` stops running before the
/// task has ended there, this waits until it runs again. Errors: those of the task.
/// Lifetime: owns the task; `other` must outlive it. Thread rule: executor-bound here, `work` runs on the thread of
/// `other`; its frame is freed here.
template <class T>
task<T> on(executor& other, task<T> work) {
    executor& home = co_await this_executor();
    if (&home == &other) co_return co_await std::move(work);
    detail::remote_task<T> there(other, work);
    co_await there;
    co_return work.promise().take();
}

} // namespace sluice
