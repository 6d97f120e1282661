#include "benchmarks/report.hpp"
#include "benchmarks/build_info.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>
#include <thread>

namespace sluice::bench {

namespace {

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (!line.starts_with("model name")) continue;
        if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

nlohmann::ordered_json machine() {
    utsname names{};
    uname(&names);
    return {{"kernel", names.release},   {"cpu", cpu_model()},
            {"cores", std::thread::hardware_concurrency()},
            {"compiler", build_compiler}, {"build_type", build_type},
            {"flags", build_flags},       {"commit", build_commit}};
}

std::string figure(double value) {
    if (value >= 1000) return fmt::format("{:.0f}", value);
    return fmt::format("{:.4g}", value);
}

} // namespace

void report::add(const row& r) {
    if (json_) print_json(r);
    else print_text(r);
    std::fflush(stdout);
}

void report::print_text(const row& r) {
    if (!headed_) {
        fmt::print("{:<24} {:>10} {:>10} {:<10} {:>6} {:>13}  {:<8} {:>7}  {}\n", "benchmark", "ours", "baseline", "unit",
                   "ratio", "quartiles", "target", "allocs", "baseline is");
        headed_ = true;
    }
    std::string target;
    if (r.target) target = fmt::format("{}{} {}", r.higher_is_better ? ">=" : "<=", *r.target, r.meets_target() ? "" : "!");
    std::string allocs = r.allocations_per_operation ? fmt::format("{:.3g}", *r.allocations_per_operation) : "";
    fmt::print("{:<24} {:>10} {:>10} {:<10} {:>6.3f} {:>6.3f}-{:<6.3f}  {:<8} {:>7}  {}\n", r.name, figure(r.ours),
               figure(r.baseline), r.unit, r.ratio, r.ratio_low, r.ratio_high, target, allocs, r.baseline_name);
}

void report::print_json(const row& r) const {
    nlohmann::ordered_json line{{"name", r.name},
                                {"unit", r.unit},
                                {"ours", r.ours},
                                {"baseline", r.baseline},
                                {"baseline_name", r.baseline_name},
                                {"ratio", r.ratio},
                                {"ratio_low", r.ratio_low},
                                {"ratio_high", r.ratio_high},
                                {"runs", r.runs},
                                {"better", r.higher_is_better ? "higher" : "lower"},
                                {"target", nullptr},
                                {"allocations_per_operation", nullptr},
                                {"machine", machine()}};
    if (r.target) line["target"] = *r.target;
    if (r.allocations_per_operation) line["allocations_per_operation"] = *r.allocations_per_operation;
    fmt::print("{}\n", line.dump());
}

} // namespace sluice::bench
