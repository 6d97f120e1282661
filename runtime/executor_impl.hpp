#pragma once

#include <sluice/executor.hpp>

#include "runtime/buffer_table.hpp"
#include "runtime/engine.hpp"
#include "runtime/inbox.hpp"
#include "runtime/poll_source.hpp"
#include "runtime/timer_heap.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::detail {

/// What an executor consists of, and its loop. The loop is a template over the engine, which instantiates it in its
/// drive(): so there is no call between the two on the way from the kernel to a coroutine. It matters because a return
/// that follows a system call is often predicted wrongly; docs/benchmarks.md has the figures.
struct executor_impl {
    // constant after create
    executor_options options;
    std::unique_ptr<detail::engine> engine;
    std::thread::id thread = std::this_thread::get_id();

    // executor thread only
    buffer_table buffers;
    timer_heap timers;
    std::vector<poll_source*> sources;
    std::uint64_t turns = 0;
    std::uint64_t spawned = 0;
    bool slept_last_turn = false;
    bool running = false;
    bool ends_on_stop = false;

    // any thread
    inbox posts;
    std::atomic<bool> stop_requested{false};

    [[gnu::noinline]] void fire_timers() noexcept {
        const auto now = std::chrono::steady_clock::now();
        while (!timers.empty() && timers.top()->deadline <= now) {
            timer_node& due = *timers.top();
            timers.remove(due);
            due.fire(due);
        }
    }
    bool poll_sources() noexcept {
        bool found = false;
        // By number: one that goes from within its own poll makes the next one wait for the next turn.
        for (std::size_t i = 0; i < sources.size(); ++i) found = sources[i]->poll() || found;
        return found;
    }
    bool take_stop() noexcept {
        return stop_requested.load(std::memory_order_relaxed) && stop_requested.exchange(false, std::memory_order_acquire);
    }
    bool stopping() const noexcept { return ends_on_stop && stop_requested.load(std::memory_order_acquire); }
    /// True when it is safe to block: whatever arrives from here on wakes us.
    bool prepare_sleep(const executor& self) noexcept {
        if (!posts.announce_sleep()) return false;
        if (sources.empty()) [[likely]] return true;
        for (poll_source* source : sources) source->arm();
        return !poll_sources() && self.ready_.empty(); // arming may need a coroutine
    }

    void run_ready(executor& self) noexcept;
    template <class Engine>
    void wait_for_work(executor& self, Engine& io) noexcept;
    bool spin(executor& self) noexcept;
    /// Until `*done`, or without one until stop().
    template <class Engine>
    void loop(executor& self, Engine& io, const bool* done) noexcept;
};

inline void executor_impl::run_ready(executor& self) noexcept {
    for (std::uint32_t left = options.ready_budget; left > 0; --left) {
        ready_node* node = self.ready_.pop();
        if (node == nullptr) return;
        self.inline_budget_ = executor::inline_budget_per_turn;
        node->handle.resume();
    }
}

/// Looks for work for at most `busy_poll` instead of sleeping.
[[gnu::noinline]] inline bool executor_impl::spin(executor& self) noexcept {
    const auto until = std::chrono::steady_clock::now() + options.busy_poll;
    do {
        engine->turn();
        posts.run_all();
        poll_sources();
        if (!self.ready_.empty() || stopping()) return true;
        if (!timers.empty()) fire_timers();
    } while (self.ready_.empty() && std::chrono::steady_clock::now() < until);
    return !self.ready_.empty();
}

template <class Engine>
[[gnu::always_inline]] inline void executor_impl::wait_for_work(executor& self, Engine& io) noexcept {
    if (options.busy_poll.count() > 0 && spin(self)) return;
    if (!prepare_sleep(self) || stopping()) {
        io.turn();
        return;
    }
    slept_last_turn = true;
    std::optional<std::chrono::steady_clock::time_point> deadline;
    if (!timers.empty()) deadline = timers.top()->deadline;
    io.turn_and_wait(deadline);
}

template <class Engine>
void executor_impl::loop(executor& self, Engine& io, const bool* done) noexcept {
    SLUICE_EXPECTS(std::this_thread::get_id() == thread, "executor: run on another thread than the one that made it");
    SLUICE_EXPECTS(!running, "executor: run from inside one of its own tasks; co_await instead");
    running = true;
    ends_on_stop = done == nullptr;
    for (;;) {
        ++turns;
        run_ready(self);
        if (done != nullptr ? *done : take_stop()) break;
        if (!timers.empty()) fire_timers();
        posts.run_all();
        if (!sources.empty()) poll_sources();
        if (self.ready_.empty()) {
            wait_for_work(self, io);
        } else {
            // Two turns without sleep: from now on other threads need not wake us.
            if (!std::exchange(slept_last_turn, false)) posts.cancel_sleep();
            io.turn();
        }
    }
    running = false;
}

} // namespace sluice::detail
