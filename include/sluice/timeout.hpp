#pragma once

#include <sluice/detail/branch.hpp>
#include <sluice/error.hpp>
#include <sluice/export.hpp>
#include <sluice/result.hpp>
#include <sluice/sleep.hpp>
#include <sluice/stop.hpp>
#include <sluice/task.hpp>

#include <chrono>
#include <type_traits>
#include <utility>

namespace sluice {

namespace detail {

/// A stop source that also stops when a time has come. Executor thread only.
class SLUICE_EXPORT stop_at : timer_node {
public:
    /// The time `time_point::max()` never comes.
    stop_at(executor& home, stop_token outer, std::chrono::steady_clock::time_point when) noexcept;
    ~stop_at();
    stop_at(const stop_at&) = delete;
    stop_at& operator=(const stop_at&) = delete;

    stop_token token() noexcept { return source_.token(); }
    /// The time came before any other stop.
    bool expired() const noexcept { return expired_; }

private:
    executor& home_;
    stop_source source_;
    bool expired_ = false;
};

} // namespace detail

/// Runs `work` until `when`, by the monotonic clock: then asks it to stop, and waits for it. See timeout().
template <class T>
task<result<T>> timeout_at(std::chrono::steady_clock::time_point when, task<result<T>> work) {
    executor& home = co_await this_executor();
    detail::stop_at limit(home, co_await this_stop_token(), when);
    result<T> r = co_await detail::under<result<T>>(work, limit.token());
    if (!r && limit.expired() && r.error() == condition::canceled) co_return errc::deadline_exceeded;
    co_return r;
}

template <class T>
task<result<T>> timeout_at(std::chrono::steady_clock::time_point when, task<T> work) {
    executor& home = co_await this_executor();
    detail::stop_at limit(home, co_await this_stop_token(), when);
    co_await detail::ended<T>(work, limit.token());
    if (limit.expired() && !work.promise().exception()) co_return errc::deadline_exceeded;
    if constexpr (std::is_void_v<T>) {
        work.promise().take();
        co_return result<void>();
    } else {
        co_return work.promise().take();
    }
}

/// `co_await timeout(2s, fetch())`: runs `work`; when the time has passed it is asked to stop, and waited for: a task
/// that does not obey its stop token delays the timeout. The clock starts with this call, not with the co_await. With no
/// time left the work still starts, and what it can do without waiting succeeds.
///
/// Errors: `errc::deadline_exceeded` (`condition::timed_out`) when the time passed first and the work was canceled by it;
/// success wins, and so does any other error of the work. Work that returns no `result` can't tell whether it was cut
/// short, so there what it returned after the time has passed is dropped. Exceptions of the work are rethrown. A stop of
/// the awaiting task reaches the work and is `condition::canceled`, as without a timeout.
/// Lifetime: owns the work; it is a task itself. Thread rule: executor-bound.
template <class Rep, class Period, class T>
auto timeout(std::chrono::duration<Rep, Period> limit, task<T> work) {
    return timeout_at(detail::deadline_after(detail::to_nanoseconds(limit)), std::move(work));
}

} // namespace sluice
