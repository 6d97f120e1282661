#include <sluice/blocking.hpp>
#include <sluice/executor.hpp>

#include "runtime/log.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace sluice::detail {

/// The helper threads of the process. They start on demand, sleep when idle and are joined by exit().
class blocking_pool {
public:
    /// Never destroyed, because a call may come while the process exits; `joiner` below ends the threads.
    static blocking_pool& instance() {
        static auto* pool = new blocking_pool;
        static joiner at_exit{*pool};
        return *pool;
    }

    void submit(blocking_call& call) noexcept {
        if (pid_ == getpid()) { // after a fork the threads, and whoever held the mutex, are the parent's
            std::lock_guard lock(mutex_);
            if (can_serve()) {
                call.next_call_ = nullptr;
                (last_ == nullptr ? first_ : last_->next_call_) = &call;
                last_ = &call;
                ++waiting_;
                work_.notify_one();
                return;
            }
        }
        SLUICE_LOG_ONCE(warning, "run_blocking: no helper thread can be had (a limit on threads or memory, a fork, or exit); "
                                 "calls run in place and hold up their executor");
        serve(call);
    }

    /// Returns when no thread is at it any more, having taken it back if none had begun.
    void wait_for(blocking_call& call) noexcept {
        if (pid_ != getpid()) return;
        std::unique_lock lock(mutex_);
        blocking_call* before = nullptr;
        for (blocking_call* at = first_; at != nullptr; before = at, at = at->next_call_) {
            if (at != &call) continue;
            (before == nullptr ? first_ : before->next_call_) = at->next_call_;
            if (last_ == at) last_ = before;
            --waiting_;
            return;
        }
        served_.wait(lock, [&] { return std::find(serving_.begin(), serving_.end(), &call) == serving_.end(); });
    }

private:
    static constexpr std::size_t threads_max = 4;

    struct joiner {
        blocking_pool& pool;
        ~joiner() { pool.join(); }
    };

    /// Starts a thread when none is free for one more call. False when nobody would take it.
    bool can_serve() noexcept {
        if (closing_) return false;
        if (waiting_ < idle_ || started_ == threads_max) return true;
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); // inherited: signals are for the program's own threads
        try {
            threads_[started_] = std::thread([this, place = started_] { loop(place); });
            pthread_setname_np(threads_[started_].native_handle(), "sluice-blocking");
            ++started_;
        } catch (const std::exception&) {
            // A limit on threads or memory [pthread_create(3)]. Those that run will come to it.
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return started_ != 0;
    }

    void loop(std::size_t place) noexcept {
        std::unique_lock lock(mutex_);
        for (;;) {
            while (first_ == nullptr && !closing_) {
                ++idle_;
                work_.wait(lock);
                --idle_;
            }
            if (closing_) return;
            blocking_call& call = *first_;
            first_ = call.next_call_;
            if (first_ == nullptr) last_ = nullptr;
            --waiting_;
            serving_[place] = &call;
            lock.unlock();
            serve(call);
            lock.lock();
            serving_[place] = nullptr;
            served_.notify_all();
        }
    }

    static void serve(blocking_call& call) noexcept {
        call.invoke_(call);
        executor& home = call.waiter_->home();
        call.run = [](posted_node& node) noexcept {
            auto& done = static_cast<blocking_call&>(node);
            done.running_ = false;
            done.waiter_->home().make_ready(*done.waiter_);
        };
        home.post(call); // ends the life of `call`
    }

    void join() noexcept {
        if (pid_ != getpid()) return;
        {
            std::lock_guard lock(mutex_);
            closing_ = true;
            first_ = last_ = nullptr; // nobody will resume their coroutines
            work_.notify_all();
        }
        for (std::thread& thread : threads_) {
            if (!thread.joinable()) continue;
            if (thread.get_id() == std::this_thread::get_id()) thread.detach(); // the call itself called exit()
            else thread.join();
        }
    }

    const pid_t pid_ = getpid();
    std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable served_;
    // under the mutex
    std::array<std::thread, threads_max> threads_;
    std::size_t started_ = 0;
    std::size_t idle_ = 0;
    std::size_t waiting_ = 0;
    std::array<const blocking_call*, threads_max> serving_{}; // compared only: a call is gone once it is served
    blocking_call* first_ = nullptr;
    blocking_call* last_ = nullptr;
    bool closing_ = false;
};

void blocking_call::begin(promise_base& waiter) noexcept {
    SLUICE_EXPECTS(!running_, "run_blocking: awaited twice");
    waiter_ = &waiter;
    running_ = true;
    blocking_pool::instance().submit(*this);
}

void blocking_call::join() noexcept {
    if (!running_) return;
    blocking_pool::instance().wait_for(*this);
    waiter_->home().forget(*this); // it may have been posted
    running_ = false;
}

} // namespace sluice::detail
