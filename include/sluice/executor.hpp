#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/ready_queue.hpp>
#include <sluice/export.hpp>
#include <sluice/result.hpp>
#include <sluice/stop.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace sluice {

class memory_pool;
class operation;

namespace detail {
class buffer_table;
class engine;
class poll_source;
struct executor_impl;
struct registration;
struct timer_node;
} // namespace detail

/// How an executor is set up. Validated by `executor::create`, which names the field that is wrong.
struct executor_options {
    std::uint32_t submission_entries = 256; ///< ring slots, rounded up to a power of two; 2..32768 [io_uring_setup(2)]
    std::uint32_t completion_entries = 0;   ///< 0: four times the submission entries; at most 65536 [io_uring_setup(2)]
    std::optional<unsigned> cpu{};           ///< pins the thread to this CPU [sched_setaffinity(2)]
    std::chrono::microseconds busy_poll{0}; ///< how long to look for work before sleeping; 0: sleep at once
    std::uint32_t ready_budget = 256;       ///< coroutines resumed before I/O is looked at again; 1..65536
    std::uint32_t registered_files = 1024;  ///< slots of the ring's file table, 0 for none [io_uring_register(2)]
};

/// Counters since the executor was made. Plain values, read on its thread.
struct executor_stats {
    std::uint64_t turns = 0;                ///< passes of the loop
    std::uint64_t enters = 0;               ///< io_uring_enter calls
    std::uint64_t sleeps = 0;               ///< enters that were allowed to block
    std::uint64_t wakes_sent = 0;           ///< wake-ups that other threads had to send to this executor
    std::uint64_t operations_started = 0;   ///< operations handed to the kernel, re-submissions included
    std::uint64_t operations_completed = 0; ///< operations that resumed their coroutine
    std::uint64_t operations_delayed = 0;   ///< operations that had to wait for a slot in the ring
    std::uint64_t in_flight = 0;            ///< operations that the kernel holds now
    std::uint64_t spawned = 0;              ///< tasks started beside others: scope, when_all, when_any, sync_wait, on
};

/// One thread with one ring. It resumes coroutines, drives their operations and sleeps when there is nothing to do.
/// A task resumes on the executor that it started on.
///
/// Lifetime: every task that ran on it must have ended before it is destroyed; an operation still in flight then is a
/// broken contract. Thread rule: created, run and destroyed on one thread; `post`, `stop` and `stop_source` may be
/// used from any thread.
class SLUICE_EXPORT executor {
public:
    /// Makes a ring on the calling thread, trying the best set of flags first and dropping to what this kernel has.
    /// Errors: `condition::invalid` (an option, by name), `condition::access_denied` or `unsupported` (io_uring is
    /// disabled here: names the likely cause), `condition::out_of_resources` (memlock or descriptors).
    static result<std::unique_ptr<executor>> create(const executor_options& options = {});
    ~executor();
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;

    /// The executor that this thread runs or has made, or null.
    static executor* current() noexcept;

    /// Runs until `stop()`. Returns when the loop has left; tasks that have not ended stay suspended, and a later
    /// run() goes on with them.
    void run();
    /// Makes run() return soon. Any thread.
    void stop() noexcept;

    /// Runs `node.run` on this executor's thread, in the order posted by each thread. Any thread. The node must live
    /// until it has run; see `forget`.
    void post(detail::posted_node& node) noexcept;
    /// Takes back a node that may have been posted and not yet run. Executor thread.
    void forget(detail::posted_node& node) noexcept;

    /// Makes memory known to the ring, such as `pool.registration()`: operations on it then need not look up and pin its
    /// pages each time. Where the memlock limit forbids it, everything works unregistered and the log says so once, with
    /// the limit and the remedy; that is no error. Errors: what else the kernel refuses it for, `out_of_resources` when
    /// the ring's 2048 slots of 1 GiB are used up.
    ///
    /// Lifetime: the memory stays mapped until unregister_memory() or the executor's end. Thread rule: executor thread.
    result<void> register_memory(const detail::registration& memory);
    /// Nothing when it isn't registered. Operations on the memory must have ended. Thread rule: executor thread.
    void unregister_memory(const detail::registration& memory) noexcept;

    /// A snapshot. Executor thread.
    executor_stats stats() const noexcept;
    /// What the ring runs with, for people: "io_uring (single issuer, deferred task work), 256/1024 entries".
    std::string description() const;
    /// The pool of the runtime that it belongs to, or null. Executor thread.
    memory_pool* pool() const noexcept { return pool_; }

    // ---- for the runtime, before tasks run ----

    /// What pool() answers from now on. Registers nothing: see register_memory(). The pool outlives the tasks.
    void use_pool(memory_pool& pool) noexcept { pool_ = &pool; }

    // ---- for awaitables: executor thread only ----

    /// Its coroutine is resumed later in this turn of the loop or in another one, never from within this call. The
    /// node belongs to the executor until then.
    void make_ready(detail::ready_node& node) noexcept { ready_.push(node); }
    /// Takes back what make_ready queued, so that its coroutine can be destroyed; false when it isn't queued. Linear:
    /// for teardown.
    bool take_back(detail::ready_node& node) noexcept { return ready_.remove(node); }
    /// True while another coroutine may be resumed from within this one; when it is false the caller makes the target
    /// ready instead. Bounds the stack where compilers make no tail calls (gcc without optimisation) and gives
    /// others their turn.
    bool take_inline_budget() noexcept {
        if (inline_budget_ == 0) return false;
        --inline_budget_;
        return true;
    }
    /// `target`'s handle for symmetric transfer, or a no-op when the budget is used up.
    std::coroutine_handle<> transfer_to(detail::ready_node& target) noexcept {
        if (take_inline_budget()) return target.handle;
        ready_.push(target);
        return std::noop_coroutine();
    }
    /// Queues an operation for the kernel, which gets it in this turn of the loop, or later while the ring is full. The
    /// operation's state is `queued`. The node is an operation.
    void start(detail::ready_node& op) noexcept { started_.push(op); }
    /// Asks the kernel to cancel it; the operation still completes exactly once.
    void cancel(operation& op) noexcept;
    ///@{
    /// From add until it fires or is removed the node is linked and must stay where it is. Firing unlinks it, then
    /// calls `fire`, at its deadline or later. Logarithmic at most, amortised.
    void add_timer(detail::timer_node& timer) noexcept;
    void remove_timer(detail::timer_node& timer) noexcept;
    ///@}
    ///@{
    /// Polled in every turn and armed before sleeping; must be removed before it is destroyed.
    void add_poll_source(detail::poll_source& source);
    void remove_poll_source(detail::poll_source& source) noexcept;
    ///@}
    /// Runs the loop until `done` is true; for sync_wait.
    void run_until(const bool& done);
    /// Adds to executor_stats::spawned.
    void count_spawn() noexcept;
    /// Owned by the executor.
    detail::engine& ring() noexcept;
    /// Which memory is registered, and in which slots.
    const detail::buffer_table& buffers() const noexcept;

private:
    friend struct detail::executor_impl;
    executor();

    static constexpr std::uint32_t inline_budget_per_turn = 32;

    // executor thread only
    memory_pool* pool_ = nullptr;
    detail::ready_queue ready_;
    detail::ready_queue started_; // operations that the engine has not seen yet
    std::uint32_t inline_budget_ = inline_budget_per_turn;
    std::unique_ptr<detail::executor_impl> impl_;
};

} // namespace sluice
