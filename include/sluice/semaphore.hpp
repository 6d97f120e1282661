#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/wait_queue.hpp>
#include <sluice/export.hpp>
#include <sluice/result.hpp>

#include <coroutine>
#include <cstddef>
#include <utility>

namespace sluice {

/// Counts permits; a task waits until there are as many as it asks for. First come, first served: who asks for many is
/// not overtaken by those who ask for few.
///
/// Lifetime: outlives the permits taken from it and the tasks that wait; destroying it while one waits is a broken
/// contract. Thread rule: executor-bound.
class SLUICE_EXPORT semaphore {
public:
    /// `permits` to begin with; no upper limit, release() may add more.
    explicit semaphore(std::size_t permits) noexcept : available_(permits) {}
    ~semaphore() { SLUICE_EXPECTS(waiting_.empty(), "semaphore: destroyed while tasks wait for permits"); }
    semaphore(const semaphore&) = delete;
    semaphore& operator=(const semaphore&) = delete;

    /// Permits held; given back when it goes.
    class [[nodiscard]] permit {
    public:
        permit() noexcept = default;
        permit(permit&& other) noexcept
            : owner_(std::exchange(other.owner_, nullptr)), count_(std::exchange(other.count_, 0)) {}
        permit& operator=(permit&& other) noexcept {
            permit old(std::move(*this));
            owner_ = std::exchange(other.owner_, nullptr);
            count_ = std::exchange(other.count_, 0);
            return *this;
        }
        ~permit() { release(); }

        /// Permits held; 0 when default-made, released, detached or moved from.
        std::size_t count() const noexcept { return count_; }
        /// Gives the permits back now. Idempotent.
        void release() noexcept {
            if (semaphore* owner = std::exchange(owner_, nullptr)) owner->release(std::exchange(count_, 0));
        }
        /// Keeps the permits taken beyond the life of this object: whoever ends the use calls semaphore::release().
        void detach() noexcept {
            owner_ = nullptr;
            count_ = 0;
        }

    private:
        friend semaphore;
        permit(semaphore& owner, std::size_t count) noexcept : owner_(&owner), count_(count) {}

        semaphore* owner_ = nullptr;
        std::size_t count_ = 0;
    };

    /// What acquire() returns: await it at once, it refers to the semaphore.
    class [[nodiscard]] acquire_operation : public detail::wait_node {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            if (!may_wait(h.promise())) return false;
            if (owner_.take(count_)) {
                end(outcome::done);
                return false;
            }
            wait(h.promise(), owner_.waiting_);
            return true;
        }
        result<permit> await_resume() noexcept {
            if (how() != outcome::done) return errc::canceled;
            return permit(owner_, count_);
        }

    private:
        friend semaphore;
        acquire_operation(semaphore& owner, std::size_t count) noexcept
            : wait_node(&on_stop), owner_(owner), count_(count) {}
        static void on_stop(detail::wait_node& node) noexcept {
            static_cast<acquire_operation&>(node).owner_.grant(); // those behind it may need less
        }

        semaphore& owner_;
        std::size_t count_;
    };

    /// `co_await s.acquire(n)`: waits for `n` permits and takes them. An `n` that release() never makes possible waits
    /// until it is stopped. Errors: `condition::canceled`, without a wait when the token is stopped already.
    acquire_operation acquire(std::size_t n = 1) noexcept { return {*this, n}; }
    /// Takes `n` permits when they are there and nobody waits; an empty one (`count() == 0`) otherwise.
    permit try_acquire(std::size_t n = 1) noexcept { return take(n) ? permit(*this, n) : permit(); }
    /// Adds `n` permits, which go to those who wait, in their order.
    void release(std::size_t n = 1) noexcept;
    /// Permits that nobody holds; may be more than 0 while a task waits for many.
    std::size_t available() const noexcept { return available_; }

private:
    bool take(std::size_t n) noexcept {
        if (!waiting_.empty() || available_ < n) return false;
        available_ -= n;
        return true;
    }
    void grant() noexcept;

    std::size_t available_;
    detail::wait_queue waiting_;
};

} // namespace sluice
