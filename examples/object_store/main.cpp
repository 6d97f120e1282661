#include "examples/object_store/command_line.hpp"
#include "examples/object_store/commands.hpp"
#include "examples/object_store/signals.hpp"

#include <sluice/runtime.hpp>

#include <utility>

// sluice-store: see README.md beside this file.

namespace {

/// A server that is told to end has ended well; a client has not done what it was asked for.
sluice::task<int> serve_until_signal(sluice::runtime& runtime, const store::settings& s, store::stop_signals& signals) {
    constexpr int by_signal = 128;
    const int status = co_await store::until_signal(signals, run_serve(runtime, s));
    co_return status > by_signal ? 0 : status;
}

int serve(const store::settings& s, store::stop_signals& signals) {
    return sluice::run([&](sluice::runtime& runtime) { return serve_until_signal(runtime, s, signals); },
                       {.pool_bytes = s.pool_bytes});
}

int transfer(const store::settings& s, store::stop_signals& signals) {
    auto jobs = store::plan_transfers(s);
    if (!jobs) return store::report_failure(s, s.what == store::command::put ? "put" : "get", jobs.error());
    return sluice::run(
        [&](sluice::runtime& runtime) { return store::until_signal(signals, run_transfers(runtime, s, *jobs)); },
        {.pool_bytes = store::client_pool_bytes(s, jobs->size())});
}

int query(const store::settings& s, store::stop_signals& signals) {
    constexpr std::size_t pool_bytes = std::size_t{2} << 20;
    return sluice::run([&](sluice::runtime& runtime) { return store::until_signal(signals, run_queries(runtime, s)); },
                       {.pool_bytes = pool_bytes});
}

} // namespace

int main(int argc, char** argv) {
    int status = 0;
    const auto settings = store::parse_command_line(argc, argv, status);
    if (!settings) return status;
    store::stop_signals signals;
    switch (settings->what) {
    case store::command::serve: return serve(*settings, signals);
    case store::command::put:
    case store::command::get: return transfer(*settings, signals);
    case store::command::list:
    case store::command::stat:
    case store::command::remove: return query(*settings, signals);
    }
    return 1;
}
