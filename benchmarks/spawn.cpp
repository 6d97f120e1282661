// Starting a task that nobody awaits by name, and joining it.
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/coroutine.hpp"

#include <sluice/scope.hpp>

#include <algorithm>

namespace sluice::bench {

namespace {

constexpr std::uint64_t at_once = 64;

task<void> count_one(std::uint64_t& counted) {
    ++counted;
    co_return;
}

task<void> spawn_and_join(std::uint64_t operations, std::uint64_t& counted) {
    scope all;
    for (std::uint64_t left = operations; left > 0;) {
        const std::uint64_t now = std::min(left, at_once);
        for (std::uint64_t i = 0; i < now; ++i) all.spawn(count_one(counted));
        left -= now;
        const auto done = co_await all.join();
        if (!done) fail("spawn: " + done.error().message());
    }
}

raw::bare_task bare_count_one(std::uint64_t& counted) {
    ++counted;
    co_return;
}

void bare_spawn_and_join(std::uint64_t operations, std::uint64_t& counted) {
    std::vector<raw::bare_task> all;
    all.reserve(at_once);
    for (std::uint64_t left = operations; left > 0;) {
        const std::uint64_t now = std::min(left, at_once);
        for (std::uint64_t i = 0; i < now; ++i) all.push_back(bare_count_one(counted));
        for (const raw::bare_task& each : all) each.handle().resume();
        all.clear();
        left -= now;
    }
}

} // namespace

void run_spawn(const settings& s, report& out) {
    const std::uint64_t operations = s.iterations_or(200'000);
    const auto home = make_executor();
    const auto check = [&](std::uint64_t counted) {
        if (counted != operations) fail("spawn: a task was lost");
    };
    out.add(measure_cpu(s, {.name = "spawn.scope",
                            .operations = operations,
                            .ours =
                                [&] {
                                    std::uint64_t counted = 0;
                                    sync_wait(*home, spawn_and_join(operations, counted));
                                    check(counted);
                                },
                            .baseline_name = "bare coroutine, heap frame, in a std::vector",
                            .baseline =
                                [&] {
                                    std::uint64_t counted = 0;
                                    bare_spawn_and_join(operations, counted);
                                    check(counted);
                                }}));
}

} // namespace sluice::bench
