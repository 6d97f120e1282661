#include "benchmarks/bench.hpp"

#include "benchmarks/measure.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <new>

namespace {
// Counted per thread, so that only what the measured thread does is seen.
constinit thread_local std::uint64_t allocation_count = 0;

void* counted(std::size_t size, std::size_t alignment) {
    ++allocation_count;
    void* memory = alignment <= alignof(std::max_align_t)
                       ? std::malloc(size)
                       : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
} // namespace

// Replaced for the whole program, the library included [new.delete].
void* operator new(std::size_t size) { return counted(size, 0); }
void* operator new[](std::size_t size) { return counted(size, 0); }
void* operator new(std::size_t size, std::align_val_t a) { return counted(size, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t size, std::align_val_t a) { return counted(size, static_cast<std::size_t>(a)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sluice::bench {

std::uint64_t allocations() noexcept { return allocation_count; }

std::chrono::nanoseconds thread_cpu_time() noexcept {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::vector<std::vector<double>> interleave(unsigned repeat, const std::vector<contender>& contenders) {
    std::vector<std::vector<double>> figures(contenders.size());
    for (const contender& run : contenders)
        if (run) run();
    for (unsigned round = 0; round < repeat; ++round) {
        for (std::size_t i = 0; i < contenders.size(); ++i) {
            const std::size_t who = (i + round) % contenders.size();
            if (contenders[who]) figures[who].push_back(contenders[who]());
        }
    }
    return figures;
}

namespace {
double quantile(std::vector<double> values, double fraction) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double at = fraction * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}
} // namespace

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

row compare(std::string name, std::string unit, const std::vector<double>& ours, std::string baseline_name,
            const std::vector<double>& baseline) {
    row r{.name = std::move(name), .unit = std::move(unit), .baseline_name = std::move(baseline_name)};
    r.ours = median(ours);
    r.baseline = median(baseline);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(ours.size(), baseline.size()); ++i) ratios.push_back(ours[i] / baseline[i]);
    r.ratio = median(ratios);
    r.ratio_low = quantile(ratios, 0.25);
    r.ratio_high = quantile(ratios, 0.75);
    r.runs = static_cast<unsigned>(std::max(ours.size(), baseline.size()));
    return r;
}

row measure_cpu(const settings& s, const cpu_comparison& what) {
    const auto cpu_ns = [&](const std::function<void()>& work) {
        const auto before = thread_cpu_time();
        work();
        return static_cast<double>((thread_cpu_time() - before).count()) / static_cast<double>(what.operations);
    };
    const auto figures = interleave(s.repeat, {if_wanted(s.wants_ours(), [&] { return cpu_ns(what.ours); }),
                                               if_wanted(s.wants_baseline(), [&] { return cpu_ns(what.baseline); })});
    row r = compare(what.name, "ns/op", figures[0], what.baseline_name, figures[1]);
    if (s.wants_ours()) {
        const std::uint64_t before = allocations();
        what.ours();
        r.allocations_per_operation =
            static_cast<double>(allocations() - before) / static_cast<double>(what.operations);
    }
    return r;
}

void fail(const std::string& why) {
    fmt::print(stderr, "sluice-bench: {}\n", why);
    std::exit(1);
}

} // namespace sluice::bench
