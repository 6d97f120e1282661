#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/wait_queue.hpp>
#include <sluice/result.hpp>

#include <coroutine>

namespace sluice {

/// Something that has happened or not. Tasks wait until it is set; it stays set until reset().
///
/// Lifetime: outlives the tasks that wait; destroying it while one waits is a broken contract. Thread rule:
/// executor-bound.
class event {
public:
    /// `set`: whether it has happened already.
    explicit event(bool set = false) noexcept : set_(set) {}
    ~event() { SLUICE_EXPECTS(waiting_.empty(), "event: destroyed while tasks wait for it"); }
    event(const event&) = delete;
    event& operator=(const event&) = delete;

    /// Lets everyone pass who waits now or comes until reset(); a reset before they have resumed does not hold them.
    void set() noexcept {
        set_ = true;
        waiting_.finish_all(detail::wait_node::outcome::done);
    }
    /// Those who come from now on wait again. Idempotent.
    void reset() noexcept { set_ = false; }
    /// Whether wait() would pass at once.
    bool is_set() const noexcept { return set_; }

    /// What wait() returns: await it at once, it refers to the event.
    class [[nodiscard]] wait_operation : public detail::wait_node {
    public:
        bool await_ready() const noexcept { return false; }
        template <detail::sluice_promise Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            if (!may_wait(h.promise())) return false;
            if (owner_.set_) {
                end(outcome::done);
                return false;
            }
            wait_node::wait(h.promise(), owner_.waiting_);
            return true;
        }
        result<void> await_resume() const noexcept { return as_result(); }

    private:
        friend event;
        explicit wait_operation(event& owner) noexcept : owner_(owner) {}

        event& owner_;
    };
    /// `co_await e.wait()`. Errors: `condition::canceled`, without a wait when the token is stopped already.
    wait_operation wait() noexcept { return wait_operation(*this); }

private:
    bool set_;
    detail::wait_queue waiting_;
};

} // namespace sluice
