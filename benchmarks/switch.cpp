// Going from one coroutine to another: by awaiting a task that ends at once, and by yielding to the next that is ready.
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/coroutine.hpp"

#include <sluice/scope.hpp>

#include <deque>

namespace sluice::bench {

namespace {

task<std::uint64_t> one(std::uint64_t value) { co_return value + 1; }

task<void> await_tasks(std::uint64_t operations, std::uint64_t& sum) {
    for (std::uint64_t i = 0; i < operations; ++i) sum = co_await one(sum);
}

raw::bare_task bare_one(std::uint64_t& value) {
    ++value;
    co_return;
}

raw::bare_task await_bare_tasks(std::uint64_t operations, std::uint64_t& sum) {
    for (std::uint64_t i = 0; i < operations; ++i) {
        const raw::bare_task next = bare_one(sum);
        co_await next;
    }
}

task<void> yield_often(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations; ++i) co_await yield();
}

task<void> yield_by_turns(std::uint64_t operations, unsigned tasks) {
    scope all;
    for (unsigned i = 0; i < tasks; ++i) all.spawn(yield_often(operations / tasks));
    const auto done = co_await all.join();
    if (!done) fail("yield: " + done.error().message());
}

using handles = std::deque<std::coroutine_handle<>>;

struct bare_yield {
    handles& ready;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) const { ready.push_back(h); }
    void await_resume() const noexcept {}
};

raw::bare_task bare_yield_often(std::uint64_t operations, handles& ready) {
    for (std::uint64_t i = 0; i < operations; ++i) co_await bare_yield{ready};
}

void bare_yield_by_turns(std::uint64_t operations, unsigned tasks) {
    handles ready;
    std::vector<raw::bare_task> all;
    for (unsigned i = 0; i < tasks; ++i) {
        all.push_back(bare_yield_often(operations / tasks, ready));
        ready.push_back(all.back().handle());
    }
    while (!ready.empty()) {
        const auto next = ready.front();
        ready.pop_front();
        next.resume();
    }
}

void check_count(std::uint64_t counted, std::uint64_t operations) {
    if (counted != operations) fail("switch: a task was lost");
}

} // namespace

void run_switch(const settings& s, report& out) {
    const std::uint64_t operations = s.iterations_or(500'000);
    const auto home = make_executor();
    const auto ours_task = [&] {
        std::uint64_t sum = 0;
        sync_wait(*home, await_tasks(operations, sum));
        check_count(sum, operations);
    };
    // Without optimisation gcc makes no tail calls, and a bare task is not protected from running out of stack.
    const std::uint64_t bare_operations = std::min<std::uint64_t>(operations, 20'000);
    const auto bare = [&] {
        for (std::uint64_t done = 0; done < operations; done += bare_operations) {
            std::uint64_t sum = 0;
            await_bare_tasks(bare_operations, sum).handle().resume();
            check_count(sum, bare_operations);
        }
    };
    out.add(measure_cpu(s, {.name = "switch.task", .operations = operations, .ours = ours_task,
                            .baseline_name = "bare coroutine, heap frame", .baseline = bare}));

    constexpr unsigned tasks = 4;
    out.add(measure_cpu(s, {.name = "switch.yield", .operations = operations,
                            .ours = [&] { sync_wait(*home, yield_by_turns(operations, tasks)); },
                            .baseline_name = "bare coroutines in a std::deque",
                            .baseline = [&] { bare_yield_by_turns(operations, tasks); }}));
}

} // namespace sluice::bench
