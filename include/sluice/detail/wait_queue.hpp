#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/promise.hpp>
#include <sluice/detail/ready_queue.hpp>
#include <sluice/error.hpp>
#include <sluice/executor.hpp>
#include <sluice/export.hpp>
#include <sluice/result.hpp>
#include <sluice/stop.hpp>

#include <cstdint>

namespace sluice::detail {

class wait_queue;

/// A coroutine that waits for another one; it lives in the awaiter. It ends exactly once: by finish(), or by a stop,
/// which takes it out of its queue. Whoever finishes it has handed over what it waited for, so success wins over a stop
/// that comes before it has resumed.
class SLUICE_EXPORT wait_node : public ready_node, stop_callback_node {
public:
    enum class outcome : std::uint8_t { pending, done, canceled, closed };

    wait_node(const wait_node&) = delete;
    wait_node& operator=(const wait_node&) = delete;

    /// Takes it out of its queue and makes its coroutine ready.
    void finish(outcome how) noexcept;

protected:
    /// `on_stop` tells the owner of the queue that a stop took the node out; for queues in which one that leaves lets
    /// others pass.
    explicit wait_node(void (*on_stop)(wait_node&) noexcept = nullptr) noexcept : on_stop_(on_stop) {}
    ~wait_node() {
        SLUICE_EXPECTS(queue_ == nullptr, "channel, semaphore, mutex, event: a coroutine was destroyed while it waits "
                                          "for one; request a stop and wait for the task to end instead");
    }

    /// False, and canceled, when the token of the promise is stopped already: then nothing is looked at.
    bool may_wait(promise_base& promise) noexcept {
        SLUICE_EXPECTS(outcome_ == outcome::pending, "channel, semaphore, mutex, event: awaited twice");
        if (!promise.token().stop_requested()) [[likely]] return true;
        outcome_ = outcome::canceled;
        return false;
    }
    /// Ends it without a wait.
    void end(outcome how) noexcept { outcome_ = how; }
    /// Joins the queue until finish() or a stop.
    void wait(promise_base& promise, wait_queue& queue) noexcept;

    outcome how() const noexcept { return outcome_; }
    result<void> as_result() const noexcept {
        if (outcome_ == outcome::done) [[likely]] return {};
        return outcome_ == outcome::closed ? errc::closed : errc::canceled;
    }

private:
    friend wait_queue;

    executor* home_ = nullptr;
    stop_state* stop_state_ = nullptr;
    wait_queue* queue_ = nullptr;
    wait_node* newer_ = nullptr;
    wait_node* older_ = nullptr;
    void (*on_stop_)(wait_node&) noexcept;
    outcome outcome_ = outcome::pending;
};

/// Those who wait, first come first served; leaving from the middle is constant. Executor thread only.
class SLUICE_EXPORT wait_queue {
public:
    wait_queue() = default;
    wait_queue(const wait_queue&) = delete;
    wait_queue& operator=(const wait_queue&) = delete;

    bool empty() const noexcept { return oldest_ == nullptr; }
    wait_node* oldest() const noexcept { return oldest_; }

    void push(wait_node& node) noexcept;
    void remove(wait_node& node) noexcept;
    /// Ends all the waits that are in it now.
    void finish_all(wait_node::outcome how) noexcept {
        while (oldest_ != nullptr) oldest_->finish(how);
    }

private:
    wait_node* oldest_ = nullptr;
    wait_node* newest_ = nullptr;
};

} // namespace sluice::detail
