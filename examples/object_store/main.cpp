#include "examples/object_store/client_memory.hpp"
#include "examples/object_store/command_line.hpp"
#include "examples/object_store/commands.hpp"
#include "examples/object_store/signals.hpp"
#include "examples/object_store/standard_output.hpp"

#include <sluice/log.hpp>
#include <sluice/runtime.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

// sluice-store: see README.md beside this file.

namespace {

/// A server that is told to end has ended well, as README.md says; a client has not done what it was asked for.
sluice::task<int> serve_until_signal(sluice::runtime& runtime, const store::settings& s, store::stop_signals& signals) {
    constexpr int by_signal = 128;
    const int status = co_await store::until_signal(signals, run_serve(runtime, s));
    co_return status > by_signal ? 0 : status;
}

int serve(const store::settings& s, store::stop_signals& signals) {
    return sluice::run([&](sluice::runtime& runtime) { return serve_until_signal(runtime, s, signals); },
                       {.pool_bytes = s.pool_bytes, .rdma_devices = s.rdma_devices});
}

int usage_mistake(const store::settings& s, std::string_view what, const sluice::error& why) {
    constexpr int status = 2;
    store::report_failure(s, what, why);
    return status;
}

int transfer(store::settings s, store::stop_signals& signals) {
    auto jobs = store::plan_transfers(s);
    if (!jobs) return usage_mistake(s, s.what == store::command::put ? "put" : "get", jobs.error());
    const store::client_memory memory = store::memory_for(s, *jobs);
    s.client.chunk_bytes = memory.chunk_bytes;
    s.client.slots = memory.slots;
    return sluice::run(
        [&](sluice::runtime& runtime) { return store::until_signal(signals, run_transfers(runtime, s, *jobs)); },
        {.pool_bytes = memory.pool_bytes, .rdma_devices = s.rdma_devices});
}

int query(const store::settings& s, store::stop_signals& signals) {
    auto places = store::plan_queries(s);
    if (!places) return usage_mistake(s, s.names.front(), places.error());
    constexpr std::size_t pool_bytes = std::size_t{2} << 20;
    return sluice::run(
        [&](sluice::runtime& runtime) { return store::until_signal(signals, run_queries(runtime, s, *places)); },
        {.pool_bytes = pool_bytes, .rdma_devices = s.rdma_devices});
}

int run(const store::settings& s) {
    store::stop_signals signals;
    // "Errors only" goes for what the library advises too, unless somebody has asked for that.
    if (s.quiet && std::getenv("SLUICE_LOG") == nullptr) sluice::set_log_level(sluice::log_level::error);
    switch (s.what) {
    case store::command::serve: return serve(s, signals);
    case store::command::put:
    case store::command::get: return transfer(s, signals);
    case store::command::list:
    case store::command::stat:
    case store::command::remove: return query(s, signals);
    }
    return 1;
}

} // namespace

int main(int argc, char** argv) {
    int status = 0;
    const auto settings = store::parse_command_line(argc, argv, status);
    if (!settings) return store::flushed("sluice-store", status);
    try {
        return store::flushed("sluice-store", run(*settings));
    } catch (const std::system_error& e) { // fmt::print, when what it prints no longer fits the buffer
        std::fprintf(stderr, "sluice-store: cannot write the output: %s\n", e.what());
        return 1;
    }
}
