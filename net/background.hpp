#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/executor.hpp>
#include <sluice/operation.hpp>

#include "runtime/engine.hpp"

#include <concepts>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace sluice::net {

/// A coroutine that an object runs for itself, such as the reader of a socket: nobody awaits it, and the object can end
/// it at any time, wherever it is suspended. It awaits operations and parking spots directly, never tasks, so that the
/// one thing it waits for is always known.
class background {
public:
    struct promise_type : detail::promise_base {
        operation* waits_for = nullptr;
        bool let_go = false;

        struct last_suspend {
            bool gone;
            bool await_ready() const noexcept { return gone; } // true destroys the frame
            void await_suspend(std::coroutine_handle<>) const noexcept {}
            void await_resume() const noexcept {}
        };

        background get_return_object() noexcept {
            const auto self = std::coroutine_handle<promise_type>::from_promise(*this);
            handle = self;
            return background(self);
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        last_suspend final_suspend() const noexcept { return {let_go}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }

        template <class Operation>
        struct watched {
            Operation& op;
            promise_type& promise;
            bool await_ready() const noexcept { return op.await_ready(); }
            bool await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                promise.waits_for = &op;
                if (op.await_suspend(h)) return true;
                promise.waits_for = nullptr;
                return false;
            }
            decltype(auto) await_resume() noexcept {
                promise.waits_for = nullptr;
                return op.await_resume();
            }
        };
        template <class Awaitable>
        struct referred {
            Awaitable& what;
            bool await_ready() const noexcept { return what.await_ready(); }
            auto await_suspend(std::coroutine_handle<promise_type> h) noexcept { return what.await_suspend(h); }
            decltype(auto) await_resume() { return what.await_resume(); }
        };
        // Returns by value: gcc 12 copies the awaiter where this returns a reference.
        template <class Awaitable>
        auto await_transform(Awaitable&& a) noexcept {
            if constexpr (std::derived_from<std::remove_reference_t<Awaitable>, operation>)
                return watched<std::remove_reference_t<Awaitable>>{a, *this};
            else if constexpr (!std::move_constructible<std::remove_cvref_t<Awaitable>>)
                return referred<std::remove_reference_t<Awaitable>>{a}; // a variable of the coroutine
            else return std::remove_cvref_t<Awaitable>(std::forward<Awaitable>(a));
        }
    };

    background() noexcept = default;
    background(background&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    background& operator=(background&& other) noexcept {
        SLUICE_EXPECTS(handle_ == nullptr, "background: replaced while there is one");
        handle_ = std::exchange(other.handle_, nullptr);
        return *this;
    }
    ~background() { SLUICE_EXPECTS(handle_ == nullptr, "background: dropped without end()"); }

    void start(executor& home) noexcept {
        handle_.promise().bind(home, {});
        home.make_ready(handle_.promise());
    }
    bool running() const noexcept { return handle_ != nullptr && !handle_.done(); }

    /// Destroys the coroutine. An operation in flight is canceled and waited for; cancelling one of a socket is
    /// immediate. Not from within the coroutine.
    void end(executor& home) noexcept {
        if (handle_ == nullptr) return;
        promise_type& promise = handle_.promise();
        if (!handle_.done()) {
            if (operation* op = promise.waits_for; op != nullptr) {
                while (op->in_flight()) { // again each time: a step may have asked anew just before
                    home.cancel(*op);
                    home.ring().turn_and_wait(std::nullopt);
                }
                home.take_back(*op);
            }
            home.take_back(promise);
        }
        std::exchange(handle_, nullptr).destroy();
    }

    /// From within the coroutine, as the last thing before it returns: its frame then goes by itself, and this is empty.
    /// For one that destroys the object which it belongs to.
    void let_go() noexcept {
        SLUICE_EXPECTS(running(), "background: let go while it does not run");
        handle_.promise().let_go = true;
        handle_ = nullptr;
    }

private:
    explicit background(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

/// Where one coroutine waits to be nudged: `co_await spot.wait()`. A nudge that finds nobody is kept for the next who
/// comes.
class parking_spot {
public:
    parking_spot() noexcept = default;
    parking_spot(const parking_spot&) = delete;
    parking_spot& operator=(const parking_spot&) = delete;

    struct awaiter {
        parking_spot& spot;
        bool await_ready() noexcept { return std::exchange(spot.nudged_, false); }
        template <detail::sluice_promise Promise>
        void await_suspend(std::coroutine_handle<Promise> h) noexcept {
            spot.waiter_ = &h.promise();
        }
        void await_resume() const noexcept {}
    };
    awaiter wait() noexcept { return {*this}; }

    void nudge() noexcept {
        detail::promise_base* waiter = std::exchange(waiter_, nullptr);
        if (waiter == nullptr) nudged_ = true;
        else waiter->home().make_ready(*waiter);
    }

private:
    detail::promise_base* waiter_ = nullptr;
    bool nudged_ = false;
};

} // namespace sluice::net
