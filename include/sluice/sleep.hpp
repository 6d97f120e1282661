#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/result.hpp>

#include <chrono>
#include <coroutine>

namespace sluice {

namespace detail {

/// A point in time that an executor watches, in an intrusive pairing heap: adding is constant, nothing allocates.
struct timer_node {
    std::chrono::steady_clock::time_point deadline;
    void (*fire)(timer_node&) noexcept = nullptr;
    timer_node* child = nullptr;
    timer_node* sibling = nullptr;
    timer_node* parent = nullptr; ///< the parent, or the elder sibling; null at the root
    bool linked = false;
};

/// `now + d` without overflow: a duration too long to express means "never".
SLUICE_EXPORT std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds d) noexcept;

/// The same duration in nanoseconds, or the longest or shortest there is: hours::max() must not wrap.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds to_nanoseconds(std::chrono::duration<Rep, Period> d) noexcept {
    using wide = std::chrono::duration<long double, std::nano>;
    if (wide(d) >= wide(std::chrono::nanoseconds::max())) return std::chrono::nanoseconds::max();
    if (wide(d) <= wide(std::chrono::nanoseconds::min())) return std::chrono::nanoseconds::min();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(d);
}
constexpr std::chrono::nanoseconds to_nanoseconds(std::chrono::nanoseconds d) noexcept { return d; }

} // namespace detail

/// `co_await sleep_until(t)`, `co_await sleep_for(d)`: resumes at or after the time, by the monotonic clock, or at
/// once with `condition::canceled` when a stop is requested. The clock of sleep_for starts when it is made. A time in
/// the past still lets others run first.
///
/// Thread rule: executor-bound.
class [[nodiscard]] sleep_until : detail::timer_node, detail::ready_node {
public:
    /// `time_point::max()` never comes: it sleeps until it is stopped.
    explicit sleep_until(std::chrono::steady_clock::time_point when) noexcept { deadline = when; }
    sleep_until(const sleep_until&) = delete;
    sleep_until& operator=(const sleep_until&) = delete;
    ~sleep_until() { SLUICE_EXPECTS(!linked, "sleep: destroyed while it sleeps"); }

    bool await_ready() const noexcept { return false; }
    template <detail::sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return begin(h.promise());
    }
    result<void> await_resume() const noexcept {
        if (canceled_) return errc::canceled;
        return {};
    }

private:
    struct stop_hook : detail::stop_callback_node {
        sleep_until* owner = nullptr;
    };
    SLUICE_EXPORT bool begin(detail::promise_base& promise) noexcept;
    static void on_time(detail::timer_node& node) noexcept;
    static void on_stop(detail::stop_callback_node& node) noexcept;

    executor* executor_ = nullptr;
    detail::stop_state* stop_state_ = nullptr;
    stop_hook stop_hook_;
    bool canceled_ = false;
};

/// See sleep_until. A duration too long to express sleeps until it is stopped; a negative one is over at once.
template <class Rep, class Period>
sleep_until sleep_for(std::chrono::duration<Rep, Period> d) noexcept {
    return sleep_until(detail::deadline_after(detail::to_nanoseconds(d)));
}

} // namespace sluice
