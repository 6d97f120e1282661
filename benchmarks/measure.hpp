#pragma once

#include "benchmarks/bench.hpp"

#include <sluice/executor.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sluice::bench {

/// An executor for this thread, or the end of the program with the reason.
inline std::unique_ptr<executor> make_executor(const executor_options& options = {}) {
    auto made = executor::create(options);
    if (!made) fail(made.error().message());
    return std::move(*made);
}

/// `run` if it is wanted, else a null contender.
inline contender if_wanted(bool wanted, contender run) { return wanted ? std::move(run) : contender(); }

/// Two ways to do the same number of operations on this thread.
struct cpu_comparison {
    std::string name;
    std::uint64_t operations;
    std::function<void()> ours;
    std::string baseline_name;
    std::function<void()> baseline;
};

/// CPU time of this thread per operation, of both.
row measure_cpu(const settings& s, const cpu_comparison& what);

} // namespace sluice::bench
