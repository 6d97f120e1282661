#include <sluice/executor.hpp>
#include <sluice/operation.hpp>

#include "runtime/buffer_table.hpp"
#include "runtime/engine.hpp"
#include "runtime/inbox.hpp"
#include "runtime/operation_table.hpp"
#include "runtime/poll_source.hpp"
#include "runtime/timer_heap.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <thread>
#include <vector>

namespace sluice {

namespace detail {

namespace {
[[gnu::tls_model("initial-exec")]] constinit thread_local executor* this_thread_executor = nullptr;
} // namespace

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

    void fire_timers() noexcept {
        const auto now = std::chrono::steady_clock::now();
        while (!timers.empty() && timers.top()->deadline <= now) {
            timer_node& due = *timers.top();
            timers.remove(due);
            due.fire(due);
        }
    }
    bool poll_sources() noexcept {
        bool found = false;
        for (poll_source* source : sources) found = source->poll() || found;
        return found;
    }
    bool stopping() const noexcept { return ends_on_stop && stop_requested.load(std::memory_order_acquire); }
    /// True when it is safe to block: whatever arrives from here on wakes us.
    bool prepare_sleep() noexcept {
        if (!posts.announce_sleep()) return false;
        for (poll_source* source : sources) source->arm();
        return !poll_sources();
    }

    void run_ready(executor& self) noexcept;
    void wait_for_work(executor& self) noexcept;
    bool spin(executor& self) noexcept;
    void loop(executor& self, const bool* done) noexcept;
};

void executor_impl::run_ready(executor& self) noexcept {
    for (std::uint32_t left = options.ready_budget; left > 0; --left) {
        ready_node* node = self.ready_.pop();
        if (node == nullptr) return;
        self.inline_budget_ = executor::inline_budget_per_turn;
        node->handle.resume();
    }
}

/// Looks for work for at most `busy_poll` instead of sleeping.
bool executor_impl::spin(executor& self) noexcept {
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

void executor_impl::wait_for_work(executor& self) noexcept {
    if (options.busy_poll.count() > 0 && spin(self)) return;
    if (!prepare_sleep() || stopping()) {
        engine->turn();
        return;
    }
    slept_last_turn = true;
    if (timers.empty()) engine->turn_and_wait(std::nullopt);
    else engine->turn_and_wait(timers.top()->deadline);
}

void executor_impl::loop(executor& self, const bool* done) noexcept {
    SLUICE_EXPECTS(std::this_thread::get_id() == thread, "executor: run on another thread than the one that made it");
    SLUICE_EXPECTS(!running, "executor: run from inside one of its own tasks; co_await instead");
    running = true;
    ends_on_stop = done == nullptr;
    for (;;) {
        ++turns;
        run_ready(self);
        if (done != nullptr ? *done : stop_requested.exchange(false, std::memory_order_acquire)) break;
        if (!timers.empty()) fire_timers();
        posts.run_all();
        if (!sources.empty()) poll_sources();
        if (self.ready_.empty()) {
            wait_for_work(self);
        } else {
            // Two turns without sleep: from now on other threads need not wake us.
            if (!std::exchange(slept_last_turn, false)) posts.cancel_sleep();
            engine->turn();
        }
    }
    running = false;
}

void operation_destroyed_in_flight(const operation& op) noexcept {
    std::fprintf(stderr,
                 "sluice: broken contract: a coroutine was destroyed while its operation '%s' (fd %d) is in flight; the "
                 "kernel still owns its memory. Request a stop and wait for the task to end instead.\n",
                 operation_name(op.request().code), op.request().fd);
    std::abort();
}

} // namespace detail

namespace {

error wrong_option(const char* name, std::uint64_t value, const char* allowed) {
    return {make_error_code(errc::invalid_argument),
            std::string("executor_options.") + name + " = " + std::to_string(value) + ", allowed is " + allowed};
}

result<void> validate(const executor_options& o) {
    if (o.submission_entries < 2 || o.submission_entries > 32768)
        return wrong_option("submission_entries", o.submission_entries, "2..32768");
    if (o.completion_entries != 0 && (o.completion_entries < 16 || o.completion_entries > 65536))
        return wrong_option("completion_entries", o.completion_entries, "0 (automatic) or 16..65536");
    if (o.ready_budget < 1 || o.ready_budget > 65536) return wrong_option("ready_budget", o.ready_budget, "1..65536");
    if (o.busy_poll.count() < 0 || o.busy_poll > std::chrono::seconds(1))
        return wrong_option("busy_poll", static_cast<std::uint64_t>(o.busy_poll.count()), "0..1000000 us");
    return {};
}

result<void> pin(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE) return wrong_option("cpu", cpu, "a CPU of this machine");
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return error::from_errno(errno, "executor_options.cpu = " + std::to_string(cpu) + ": sched_setaffinity");
    return {};
}

} // namespace

executor::executor() : impl_(std::make_unique<detail::executor_impl>()) {}

result<std::unique_ptr<executor>> executor::create(const executor_options& options) {
    SLUICE_EXPECTS(current() == nullptr, "executor: this thread has one already");
    if (auto ok = validate(options); !ok) return ok.error();
    if (options.cpu) {
        if (auto ok = pin(*options.cpu); !ok) return ok.error();
    }
    executor_options chosen = options;
    // Cancel requests that find nothing and the wake-up need room beside the operations.
    if (chosen.completion_entries == 0) chosen.completion_entries = std::clamp(chosen.submission_entries * 4, 32U, 65536U);
    auto engine = detail::make_uring_engine(chosen);
    if (!engine) return engine.error();
    std::unique_ptr<executor> made(new executor);
    made->impl_->options = chosen;
    made->impl_->engine = std::move(*engine);
    detail::this_thread_executor = made.get();
    return made;
}

executor::~executor() {
    if (impl_->engine == nullptr) return;
    SLUICE_EXPECTS(std::this_thread::get_id() == impl_->thread, "executor: destroyed on another thread");
    SLUICE_EXPECTS(!impl_->running, "executor: destroyed from inside its own loop");
    impl_->posts.close();
    detail::this_thread_executor = nullptr;
}

executor* executor::current() noexcept { return detail::this_thread_executor; }

void executor::run() { impl_->loop(*this, nullptr); }

void executor::run_until(const bool& done) { impl_->loop(*this, &done); }

void executor::stop() noexcept {
    detail::inbox::guard in_use(impl_->posts);
    impl_->stop_requested.store(true, std::memory_order_release);
    impl_->posts.count_wake();
    impl_->engine->wake();
}

void executor::post(detail::posted_node& node) noexcept {
    detail::inbox::guard in_use(impl_->posts);
    if (impl_->posts.push(node)) {
        impl_->posts.count_wake();
        impl_->engine->wake();
    }
}

void executor::forget(detail::posted_node& node) noexcept { impl_->posts.forget(node); }

void executor::start(operation& op) noexcept {
    SLUICE_DEBUG_EXPECTS(current() == this, "operation: started on another thread than its executor's");
    impl_->engine->start(op);
}

void executor::cancel(operation& op) noexcept { impl_->engine->cancel(op); }

void executor::add_timer(detail::timer_node& timer) noexcept { impl_->timers.push(timer); }

void executor::remove_timer(detail::timer_node& timer) noexcept { impl_->timers.remove(timer); }

void executor::add_poll_source(detail::poll_source& source) { impl_->sources.push_back(&source); }

void executor::remove_poll_source(detail::poll_source& source) noexcept {
    const auto removed = std::erase(impl_->sources, &source);
    SLUICE_EXPECTS(removed == 1, "executor: the poll source was not added");
}

void executor::count_spawn() noexcept { ++impl_->spawned; }

result<void> executor::register_memory(const detail::registration& memory) {
    SLUICE_EXPECTS(current() == this, "register_memory: on another thread than the executor's");
    // The ring reads and writes with the CPU's page tables; what lies in a GPU is not in them.
    if (memory.kind == memory_kind::device) return {};
    return impl_->buffers.add(*impl_->engine, memory);
}

void executor::unregister_memory(const detail::registration& memory) noexcept {
    SLUICE_EXPECTS(current() == this, "unregister_memory: on another thread than the executor's");
    impl_->buffers.remove(*impl_->engine, memory);
}

const detail::buffer_table& executor::buffers() const noexcept { return impl_->buffers; }

detail::engine& executor::ring() noexcept { return *impl_->engine; }

executor_stats executor::stats() const noexcept {
    const detail::engine_stats e = impl_->engine->stats();
    return {.turns = impl_->turns,
            .enters = e.enters,
            .sleeps = e.sleeps,
            .wakes_sent = impl_->posts.wakes(),
            .operations_started = e.started,
            .operations_completed = e.completed,
            .operations_delayed = e.delayed,
            .in_flight = e.in_flight,
            .spawned = impl_->spawned};
}

std::string executor::description() const { return impl_->engine->description(); }

} // namespace sluice
