#include <sluice/detail/branch.hpp>
#include <sluice/executor.hpp>
#include <sluice/scope.hpp>

#include <exception>
#include <utility>

namespace sluice {

/// The coroutine around each child: it owns the task, so that both frames go when the child ends.
struct scope::child {
    static detail::detached run(scope& owner, task<void> work) {
        co_await detail::ended<void>(work);
        std::exception_ptr exception = work.promise().exception();
        work = {};
        owner.on_end(std::nullopt, std::move(exception));
    }
    static detail::detached run(scope& owner, task<result<void>> work) {
        co_await detail::ended<result<void>>(work);
        std::exception_ptr exception = work.promise().exception();
        std::optional<error> failure;
        if (!exception) {
            result<void> r = work.promise().take();
            if (!r) failure = std::move(r).error();
        }
        work = {};
        owner.on_end(std::move(failure), std::move(exception));
    }
    template <class T>
    static void start(scope& owner, task<T> work) {
        SLUICE_EXPECTS(static_cast<bool>(work), "scope: spawn of a task that is empty or moved from");
        SLUICE_EXPECTS(executor::current() == owner.home_, "scope: spawn on another thread than its executor's");
        const detail::detached coroutine = run(owner, std::move(work));
        ++owner.running_;
        coroutine.start(*owner.home_, owner.source_.token());
    }
};

scope::scope() : home_(executor::current()) {}

scope::~scope() {
    // Its text is out of reach before somebody catches it.
    SLUICE_EXPECTS(running_ == 0 || std::uncaught_exceptions() == 0,
                   "scope: an exception left its block while children run; catch it in there, request_stop(), co_await "
                   "join(), and throw it on");
    SLUICE_EXPECTS(running_ == 0, "scope: destroyed while children run; co_await join() before it goes");
}

void scope::spawn(task<void> work) { child::start(*this, std::move(work)); }

void scope::spawn(task<result<void>> work) { child::start(*this, std::move(work)); }

void scope::request_stop() noexcept {
    stop_asked_.store(true, std::memory_order_relaxed);
    source_.request_stop();
}

void scope::on_end(std::optional<error> failure, std::exception_ptr exception) noexcept {
    if (exception && !exception_) exception_ = std::move(exception);
    const bool asked_for = failure && stop_asked_.load(std::memory_order_relaxed) && *failure == condition::canceled;
    if (failure && !failure_ && !asked_for) failure_ = std::move(failure);
    if (--running_ != 0 || join_ == nullptr) return;
    join_operation& join = *std::exchange(join_, nullptr);
    if (join.linked) joiner_stop_->unlink(join);
    home_->make_ready(*join.waiter_);
}

bool scope::begin_join(join_operation& join, detail::promise_base& waiter) noexcept {
    SLUICE_EXPECTS(join_ == nullptr, "scope: joined by two tasks at once");
    SLUICE_EXPECTS(&waiter.home() == home_, "scope: joined on another executor than its own");
    if (running_ == 0) return false;
    join_ = &join;
    join.waiter_ = &waiter;
    const stop_token token = waiter.token();
    if (token.stop_requested()) {
        source_.request_stop();
    } else if (token.stop_possible()) {
        joiner_stop_ = token.state();
        join.invoke = [](detail::stop_callback_node& node) noexcept {
            static_cast<join_operation&>(node).scope_.source_.request_stop();
        };
        joiner_stop_->link(join);
    }
    return true;
}

result<void> scope::take_outcome() {
    std::optional<error> failure = std::exchange(failure_, std::nullopt);
    if (std::exception_ptr exception = std::exchange(exception_, nullptr)) std::rethrow_exception(exception);
    if (failure) return std::move(*failure);
    return {};
}

} // namespace sluice
