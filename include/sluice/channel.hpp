#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/wait_queue.hpp>
#include <sluice/result.hpp>

#include <coroutine>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice {

/// Values from any number of tasks to any number of tasks, in order, at most `capacity` of them on the way; a sender
/// waits while it is full, a receiver while it is empty, each first come, first served. Capacity 0 is a rendezvous: a
/// send ends when a receiver has taken the value.
///
/// Lifetime: outlives the tasks that wait; destroying it while one waits is a broken contract. Thread rule:
/// executor-bound; to reach it from another executor use on().
template <class T>
class channel {
    static_assert(std::is_nothrow_move_constructible_v<T>, "channel: the move of a value must not throw");

public:
    /// Allocates room for `capacity` values, once.
    explicit channel(std::size_t capacity) : slots_(capacity) {}
    ~channel() {
        SLUICE_EXPECTS(senders_.empty() && receivers_.empty(), "channel: destroyed while tasks wait in it; close it first");
    }
    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;

    /// What send() returns: await it at once, it refers to the channel.
    class [[nodiscard]] send_operation : public detail::wait_node {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            if (!may_wait(h.promise())) return false;
            if (owner_.closed_ || owner_.try_send(std::move(value_))) {
                end(owner_.closed_ ? outcome::closed : outcome::done);
                return false;
            }
            wait(h.promise(), owner_.senders_);
            return true;
        }
        result<void> await_resume() const noexcept { return as_result(); }

    private:
        friend channel;
        send_operation(channel& owner, T value) noexcept : owner_(owner), value_(std::move(value)) {}

        channel& owner_;
        T value_;
    };

    /// What receive() returns: await it at once, it refers to the channel.
    class [[nodiscard]] receive_operation : public detail::wait_node {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            if (!may_wait(h.promise())) return false;
            value_ = owner_.try_receive();
            if (value_ || owner_.closed_) {
                end(value_ ? outcome::done : outcome::closed);
                return false;
            }
            wait(h.promise(), owner_.receivers_);
            return true;
        }
        result<T> await_resume() noexcept {
            if (value_) return std::move(*value_);
            return how() == outcome::closed ? errc::closed : errc::canceled;
        }

    private:
        friend channel;
        explicit receive_operation(channel& owner) noexcept : owner_(owner) {}

        channel& owner_;
        std::optional<T> value_;
    };

    /// `co_await c.send(v)`. Errors: `condition::closed`, `condition::canceled` (without a wait when the token is stopped
    /// already); then the value was not sent and is gone.
    send_operation send(T value) noexcept { return {*this, std::move(value)}; }
    /// `co_await c.receive()`. Errors: `condition::closed` when it is closed and every value has been taken,
    /// `condition::canceled` (without a look when the token is stopped already; no value is lost).
    receive_operation receive() noexcept { return receive_operation(*this); }

    /// Sends unless that would wait or it is closed; then it returns false and `value` is untouched.
    template <class U = T>
        requires std::is_nothrow_constructible_v<T, U&&>
    bool try_send(U&& value) noexcept {
        if (closed_) return false;
        if (!receivers_.empty()) {
            auto& receiver = static_cast<receive_operation&>(*receivers_.oldest());
            receiver.value_.emplace(std::forward<U>(value));
            receiver.finish(detail::wait_node::outcome::done);
            return true;
        }
        if (count_ == slots_.size()) return false;
        push(std::forward<U>(value));
        return true;
    }
    /// The oldest value, if there is one.
    std::optional<T> try_receive() noexcept {
        std::optional<T> value;
        if (count_ != 0) {
            value = std::exchange(slots_[first_], std::nullopt);
            first_ = first_ + 1 == slots_.size() ? 0 : first_ + 1;
            --count_;
        }
        if (senders_.empty()) return value;
        auto& sender = static_cast<send_operation&>(*senders_.oldest());
        if (value) push(std::move(sender.value_));
        else value.emplace(std::move(sender.value_));
        sender.finish(detail::wait_node::outcome::done);
        return value;
    }

    /// Ends the waits of all senders and receivers with `condition::closed`; what is inside can still be received.
    /// Idempotent.
    void close() noexcept {
        closed_ = true;
        senders_.finish_all(detail::wait_node::outcome::closed);
        receivers_.finish_all(detail::wait_node::outcome::closed);
    }
    /// True from close() on, also while values are left to receive.
    bool closed() const noexcept { return closed_; }
    ///@{
    /// Counted in values; those of senders that wait are not in size(). A rendezvous has 0 of both.
    std::size_t size() const noexcept { return count_; }
    std::size_t capacity() const noexcept { return slots_.size(); }
    ///@}

private:
    template <class U>
    void push(U&& value) noexcept {
        SLUICE_DEBUG_EXPECTS(count_ < slots_.size(), "channel: more values than it has room for");
        const std::size_t to_end = slots_.size() - first_;
        slots_[count_ < to_end ? first_ + count_ : count_ - to_end].emplace(std::forward<U>(value));
        ++count_;
    }

    std::vector<std::optional<T>> slots_; // a ring: `count_` values from `first_` on
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    bool closed_ = false;
    // Senders wait only while it is full, receivers only while it is empty.
    detail::wait_queue senders_;
    detail::wait_queue receivers_;
};

} // namespace sluice
