#pragma once

#include "benchmarks/bench.hpp"

#include <sluice/executor.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <cstdint>
#include <memory>

namespace sluice::bench {

/// An executor for this thread, or the end of the program with the reason.
inline std::unique_ptr<executor> make_executor(const executor_options& options = {}) {
    auto made = executor::create(options);
    if (!made) fail(made.error().message());
    return std::move(*made);
}

/// CPU time of this thread per operation, in nanoseconds.
template <class F>
double cpu_ns_per_operation(std::uint64_t operations, F&& work) {
    const auto before = thread_cpu_time();
    work();
    return static_cast<double>((thread_cpu_time() - before).count()) / static_cast<double>(operations);
}

/// Heap allocations of this thread per operation, counted over one run.
template <class F>
double allocations_per_operation(std::uint64_t operations, F&& work) {
    const std::uint64_t before = allocations();
    work();
    return static_cast<double>(allocations() - before) / static_cast<double>(operations);
}

} // namespace sluice::bench
