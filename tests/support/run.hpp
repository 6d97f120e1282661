#pragma once

#include <sluice/executor.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <utility>

namespace sluice::testing {

inline std::unique_ptr<executor> make_executor(const executor_options& options = {}) {
    auto made = executor::create(options);
    REQUIRE(made);
    return std::move(*made);
}

/// Runs `work` on an executor of its own.
template <class T>
T run(task<T> work) {
    const auto home = make_executor();
    return sync_wait(*home, std::move(work));
}

/// Lets everything that is ready run, `times` times over.
inline task<void> yields(int times) {
    for (int i = 0; i < times; ++i) co_await yield();
}

} // namespace sluice::testing
