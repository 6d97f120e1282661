#include <sluice/executor.hpp>
#include <sluice/operation.hpp>

#include "runtime/buffer_table.hpp"
#include "runtime/executor_impl.hpp"
#include "runtime/operation_table.hpp"

#include <algorithm>
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
    made->impl_->engine->take_from(made->started_);
    detail::this_thread_executor = made.get();
    return made;
}

executor::~executor() {
    if (impl_->engine == nullptr) return;
    SLUICE_EXPECTS(std::this_thread::get_id() == impl_->thread, "executor: destroyed on another thread");
    SLUICE_EXPECTS(!impl_->running, "executor: destroyed from inside its own loop");
    SLUICE_EXPECTS(impl_->timers.empty(), "executor: destroyed while tasks sleep or have a deadline; join them first");
    impl_->posts.close();
    detail::this_thread_executor = nullptr;
}

executor* executor::current() noexcept { return detail::this_thread_executor; }

void executor::run() { impl_->engine->drive(*impl_, *this, nullptr); }

void executor::run_until(const bool& done) { impl_->engine->drive(*impl_, *this, &done); }

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
