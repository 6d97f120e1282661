#pragma once

#include <sluice/scope.hpp>
#include <sluice/stop.hpp>

#include "tests/support/run.hpp"

#include <utility>

namespace sluice::testing {

/// Runs `work` under a token that is stopped once everything has come to rest, or beforehand when `before`.
template <class T>
T run_stopped(task<T> work, bool before = false) {
    const auto home = make_executor();
    stop_source source;
    if (before) source.request_stop();
    const auto stop_later = [](stop_source& s) -> task<void> {
        co_await yields(20);
        s.request_stop();
    };
    const auto both = [](task<T> stopped, task<void> stopper) -> task<T> {
        scope s;
        s.spawn(std::move(stopper));
        if constexpr (std::is_void_v<T>) {
            co_await std::move(stopped);
            static_cast<void>(co_await s.join());
        } else {
            T value = co_await std::move(stopped);
            static_cast<void>(co_await s.join());
            co_return value;
        }
    };
    return sync_wait(*home, both(std::move(work), stop_later(source)), source.token());
}

} // namespace sluice::testing
