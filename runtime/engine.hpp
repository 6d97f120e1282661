#pragma once

#include <sluice/operation.hpp>
#include <sluice/result.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/uio.h>
#include <vector>

namespace sluice::detail {

struct engine_stats {
    std::uint64_t enters = 0;
    std::uint64_t sleeps = 0;
    std::uint64_t started = 0;
    std::uint64_t completed = 0;
    std::uint64_t delayed = 0;
    std::uint64_t in_flight = 0;
};

/// A thing that the engine found here or didn't, for sluice-info.
struct engine_feature {
    const char* name;
    bool present;
};

struct executor_impl;

/// The seam under the executor: whatever turns requests into completions. io_uring today; an epoll engine for places
/// where it is forbidden fits behind the same calls. Executor thread only, but for wake().
class engine {
public:
    engine() = default;
    virtual ~engine() = default;
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;

    /// Where the executor puts operations that were started: each turn takes them from there, all at once, which costs
    /// a fraction of a call for each. The queue outlives the engine.
    void take_from(ready_queue& started) noexcept { started_ = &started; }
    /// The operation completes in a later turn, never from within this call.
    virtual void cancel(operation& op) noexcept = 0;
    /// Submits what was started and completes what is done, without blocking.
    virtual void turn() noexcept = 0;
    /// The same, and blocks until something completes, wake() was called, or the deadline has passed.
    virtual void turn_and_wait(std::optional<std::chrono::steady_clock::time_point> deadline) noexcept = 0;
    /// Runs the executor's loop over this engine, until `*done` or, without one, until the executor is stopped.
    virtual void drive(executor_impl& loop, executor& self, const bool* done) noexcept = 0;
    /// Makes a blocked or the next turn_and_wait return. Any thread.
    virtual void wake() noexcept = 0;

    static constexpr std::uint32_t buffer_slots = 2048;
    /// Registers memory for the fixed opcodes in consecutive slots from `first_slot`, at most 1 GiB each: all or none.
    virtual result<void> register_buffers(std::uint32_t first_slot, std::span<const iovec> buffers) = 0;
    virtual void unregister_buffers(std::uint32_t first_slot, std::uint32_t count) noexcept = 0;
    /// A slot of the file table for `fd`, or an error when there is none.
    virtual result<std::uint32_t> register_file(int fd) = 0;
    virtual void unregister_file(std::uint32_t slot) noexcept = 0;

    virtual bool supports(opcode code) const noexcept = 0;
    virtual engine_stats stats() const noexcept = 0;
    virtual std::string description() const = 0;
    virtual std::vector<engine_feature> features() const = 0;

protected:
    ready_queue* started_ = nullptr;
};

result<std::unique_ptr<engine>> make_uring_engine(const executor_options& options);

} // namespace sluice::detail
