// sluice-info: what this machine can do for sluice, and why not.

#include "runtime/engine.hpp"
#include "runtime/operation_table.hpp"

#include <sluice/config.hpp>
#include <sluice/executor.hpp>

#if SLUICE_HAS_RDMA
#include "rdma/rdma_provider.hpp"
#include "tools/rdma_info.hpp"
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <vector>

namespace {

using json = nlohmann::ordered_json;

/// One line of the report. `state` is "yes", "no" or a value; `note` says why, or what to do.
struct fact {
    std::string section;
    std::string name;
    json value;
    std::string note;
};

json limit_value(rlim_t bytes) {
    if (bytes == RLIM_INFINITY) return "unlimited";
    return static_cast<std::uint64_t>(bytes);
}

bool may_lock_any_memory() {
    constexpr unsigned cap_ipc_lock = 14; // [capabilities(7)]
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("CapEff:"))
            return (std::stoull(line.substr(7), nullptr, 16) >> cap_ipc_lock & 1U) != 0;
    return false;
}

std::string first_line(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

void machine_facts(std::vector<fact>& facts) {
    utsname name{};
    uname(&name);
    facts.push_back({"machine", "kernel", name.release, "6.1 or newer is needed"});
    facts.push_back({"machine", "architecture", name.machine, ""});
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    facts.push_back({"machine", "cpus", CPU_COUNT(&set), "that this process may use"});

    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    facts.push_back({"limits", "memlock_bytes", limit_value(limit.rlim_cur),
                     may_lock_any_memory() ? "does not apply: this process has CAP_IPC_LOCK"
                                           : "registered memory counts against it; raise with ulimit -l or LimitMEMLOCK="});
    getrlimit(RLIMIT_NOFILE, &limit);
    facts.push_back({"limits", "open_files", limit_value(limit.rlim_cur),
                     "a connection over TCP takes one per lane; over RDMA none of its own"});

    for (const auto& entry : std::filesystem::directory_iterator(
             "/sys/kernel/mm/hugepages", std::filesystem::directory_options::skip_permission_denied)) {
        const std::string free = first_line(entry.path() / "free_hugepages");
        facts.push_back({"huge pages", entry.path().filename().string(), free.empty() ? json(nullptr) : json(std::stoull(free)),
                         "free; reserve with sysctl vm.nr_hugepages"});
    }
    const std::string thp = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    facts.push_back({"huge pages", "transparent", thp.empty() ? "none" : thp, ""});
}

void engine_facts(std::vector<fact>& facts) {
    auto made = sluice::executor::create();
    if (!made) {
        facts.push_back({"engine", "io_uring", "no", made.error().message()});
        return;
    }
    facts.push_back({"engine", "io_uring", "yes", (*made)->description()});
    for (const auto& feature : (*made)->ring().features())
        facts.push_back({"engine", feature.name, feature.present ? "yes" : "no", ""});
    std::string missing;
    for (const auto& row : sluice::detail::operation_table)
        if (!(*made)->ring().supports(row.code)) missing += (missing.empty() ? "" : ", ") + std::string(row.name);
    facts.push_back({"engine", "operations", missing.empty() ? "all" : "some missing",
                     missing.empty() ? "probed on this kernel" : "this kernel lacks: " + missing});
}

/// What the kernel lists, whether this program can use it or not.
std::string kernel_devices() {
    std::string devices;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", ignored))
        devices += (devices.empty() ? "" : ", ") + entry.path().filename().string();
    return devices;
}

/// Facts, and the devices with all that is known of them: an array.
json rdma_facts(std::vector<fact>& facts, [[maybe_unused]] const std::string& selection) {
    const std::string devices = kernel_devices();
    const json found = devices.empty() ? "none" : devices;
#if SLUICE_HAS_RDMA
    facts.push_back({"rdma", "provider", "built", ""});
    if (!selection.empty()) facts.push_back({"rdma", "chosen", selection, "--rdma-devices, or SLUICE_RDMA_USE"});
    const auto available = sluice::rdma::rdma_available(selection);
    facts.push_back({"rdma", "usable", available ? "yes" : "no",
                     available ? sluice::tools::why_connections_fail() : available.error().message()});
    facts.push_back({"rdma", "devices", found, ""});
    if (devices.empty()) return json::array();
    auto all = sluice::tools::rdma_devices(selection);
    if (all) return *all;
    facts.back().note = all.error().message();
    return json::array();
#else
    facts.push_back(
        {"rdma", "provider", "not built", "connections use TCP; see the summary of meson setup for the reason"});
    facts.push_back({"rdma", "devices", found, ""});
    return json::array();
#endif
}

void gpu_facts(std::vector<fact>& facts) {
    facts.push_back({"gpu", "support", SLUICE_HAS_GPU ? "built" : "not built", ""});
    const bool driver = std::filesystem::exists("/proc/driver/nvidia/version");
    facts.push_back({"gpu", "driver", driver ? first_line("/proc/driver/nvidia/version") : "none", ""});
}

void print_text(const std::vector<fact>& facts) {
    fmt::print("sluice {}\n", SLUICE_VERSION_STRING);
    std::string section;
    for (const fact& f : facts) {
        if (f.section != section) {
            section = f.section;
            fmt::print("\n{}\n", section);
        }
        const std::string value = f.value.is_string() ? f.value.get<std::string>() : f.value.dump();
        fmt::print("  {:<18} {}{}\n", f.name, value, f.note.empty() ? "" : "  (" + f.note + ")");
    }
}

/// A section for each.
void add_devices(std::vector<fact>& facts, [[maybe_unused]] const json& devices) {
#if SLUICE_HAS_RDMA
    for (const json& device : devices)
        for (const auto& [name, value] : sluice::tools::lines_of(device))
            facts.push_back({"rdma device " + device["name"].get<std::string>(), name, value, ""});
#else
    static_cast<void>(facts);
#endif
}

void print_json(const std::vector<fact>& facts, const json& rdma_devices) {
    json out;
    out["version"] = SLUICE_VERSION_STRING;
    for (const fact& f : facts) {
        json& at = out[f.section][f.name];
        at["value"] = f.value;
        if (!f.note.empty()) at["note"] = f.note;
    }
    out["rdma"]["devices"]["list"] = rdma_devices;
    fmt::print("{}\n", out.dump(2));
}

/// What could not be printed has not been said.
int flushed() {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
    fmt::print(stderr, "sluice-info: cannot write to standard output{}{}\n", errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
    return 1;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app("What this machine can do for sluice, and why not.");
    app.set_version_flag("--version", SLUICE_VERSION_STRING);
    bool as_json = false;
    app.add_flag("--json", as_json, "one JSON object instead of text");
    std::string rdma_devices;
    app.add_option("--rdma-devices", rdma_devices,
                   "RDMA devices to choose, as runtime_options.rdma_devices: mlx5_0, mlx5_0:1, an IP address, !mlx5_1, ...")
        ->envname("SLUICE_RDMA_USE");
    app.footer("The exit status is 0 when all was said, 1 when it could not be, 2 for a mistake on the command line.");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        constexpr int usage_mistake = 2;
        return app.exit(e) == 0 ? flushed() : usage_mistake;
    }

    std::vector<fact> facts;
    json devices;
    try {
        machine_facts(facts);
        engine_facts(facts);
        devices = rdma_facts(facts, rdma_devices);
        if (!as_json) add_devices(facts, devices);
        gpu_facts(facts);
        if (as_json) print_json(facts, devices);
        else print_text(facts);
    } catch (const std::exception& e) { // also of fmt::print, when what it prints no longer fits the buffer
        fmt::print(stderr, "sluice-info: {}\n", e.what());
        return 1;
    }
    return flushed();
}
