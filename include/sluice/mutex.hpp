#pragma once

#include <sluice/result.hpp>
#include <sluice/semaphore.hpp>

#include <coroutine>
#include <utility>

namespace sluice {

/// Lets one task at a time into a stretch of code that suspends; between two suspensions a task is alone on its
/// executor anyway. First come, first served: unlocking hands over to the one who waited longest. Not recursive.
///
/// Lifetime: outlives its guards and the tasks that wait; destroying it while one waits is a broken contract.
/// Thread rule: executor-bound.
class mutex {
public:
    mutex() noexcept : permit_(1) {}

    /// Holds the mutex; unlocks when it goes.
    class [[nodiscard]] lock_guard {
    public:
        /// Holds nothing.
        lock_guard() noexcept = default;
        /// False when default-made, unlocked, moved from, or from a try_lock() that failed.
        bool owns_lock() const noexcept { return permit_.count() != 0; }
        /// Unlocks now. Idempotent.
        void unlock() noexcept { permit_.release(); }

    private:
        friend mutex;
        explicit lock_guard(semaphore::permit permit) noexcept : permit_(std::move(permit)) {}

        semaphore::permit permit_;
    };

    /// What lock() returns: await it at once, it refers to the mutex.
    class [[nodiscard]] lock_operation {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            return acquire_.await_suspend(h);
        }
        result<lock_guard> await_resume() noexcept {
            auto permit = acquire_.await_resume();
            if (!permit) return std::move(permit).error();
            return lock_guard(std::move(*permit));
        }

    private:
        friend mutex;
        explicit lock_operation(semaphore& permit) noexcept : acquire_(permit.acquire()) {}

        semaphore::acquire_operation acquire_;
    };

    /// `co_await m.lock()`. Errors: `condition::canceled`, without a wait when the token is stopped already.
    lock_operation lock() noexcept { return lock_operation(permit_); }
    /// A guard that owns the lock when the mutex was free, and holds nothing otherwise.
    lock_guard try_lock() noexcept { return lock_guard(permit_.try_acquire()); }
    /// Whether somebody holds it, the caller included.
    bool locked() const noexcept { return permit_.available() == 0; }

private:
    semaphore permit_;
};

} // namespace sluice
