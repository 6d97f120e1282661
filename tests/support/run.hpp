#pragma once

#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <source_location>
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

// Catch2's macros name their expression twice, the second time where it is not evaluated; gcc evaluates a co_await there
// all the same. So never write CHECK(co_await x): await into a variable, or into one of these.

template <class T>
void check_ok(const result<T>& r, std::source_location where = std::source_location::current()) {
    INFO(where.file_name() << ':' << where.line());
    if (!r) UNSCOPED_INFO(r.error().message());
    CHECK(r.has_value());
}

template <class T, class U>
void check_value(const result<T>& r, const U& expected, std::source_location where = std::source_location::current()) {
    INFO(where.file_name() << ':' << where.line());
    if (!r) UNSCOPED_INFO(r.error().message());
    REQUIRE(r.has_value());
    CHECK(*r == expected);
}

template <class T>
void check_error(const result<T>& r, condition expected, std::source_location where = std::source_location::current()) {
    INFO(where.file_name() << ':' << where.line());
    REQUIRE_FALSE(r.has_value());
    UNSCOPED_INFO(r.error().message());
    CHECK(r.error() == expected);
}

/// Lets everything that is ready run, `times` times over.
inline task<void> yields(int times) {
    for (int i = 0; i < times; ++i) co_await yield();
}

} // namespace sluice::testing
