#include "benchmarks/bench.hpp"

#include <sluice/config.hpp>

#include <CLI/CLI.hpp>
#include <array>
#include <fmt/format.h>

#if SLUICE_HAS_RDMA
#include "benchmarks/raw/verbs.hpp"
#endif

namespace {

struct command {
    const char* name;
    const char* what;
    void (*run)(const sluice::bench::settings&, sluice::bench::report&);
    bool needs_rdma_device = false; ///< `all` leaves it out where there is none, and says so
};

constexpr std::array commands{
    command{"switch", "going from coroutine to coroutine, beside bare coroutines", sluice::bench::run_switch},
    command{"spawn", "starting and joining a task, beside bare coroutines", sluice::bench::run_spawn},
    command{"nop", "NOPs through the ring, batches of 1, 8 and 32, beside bare liburing", sluice::bench::run_nop},
    command{"file", "random direct reads at depth 1 and 64, beside bare liburing and fio", sluice::bench::run_file},
    command{"echo", "CPU time of a TCP echo server, beside bare epoll and bare ring servers", sluice::bench::run_echo},
    command{"read", "one-sided reads over TCP, beside a stream of send and recv", sluice::bench::run_read},
    command{"write", "one-sided writes over TCP, beside a stream of send and recv", sluice::bench::run_write},
    command{"zero_copy", "zero-copy sends over loopback, beside plain ones, both on bare liburing", sluice::bench::run_zero_copy},
#if SLUICE_HAS_RDMA
    command{"rdma-read", "READs over RDMA, at depth 1 and 16, polled and by events, beside bare verbs", sluice::bench::run_rdma_read, true},
    command{"rdma-write", "the same with WRITEs", sluice::bench::run_rdma_write, true},
    command{"rdma-send", "messages over RDMA, there and back at depth 1, one way at depth 16, beside bare verbs", sluice::bench::run_rdma_send, true},
    command{"rdma-post", "WRITEs on a device of memory that does nothing, beside bare verbs; needs no device", sluice::bench::run_rdma_post},
#endif
};

/// Why the command can't run here; empty if it can.
std::string why_not([[maybe_unused]] const command& c, [[maybe_unused]] const sluice::bench::settings& s) {
    std::string why;
#if SLUICE_HAS_RDMA
    if (c.needs_rdma_device && s.address.empty()) static_cast<void>(sluice::bench::raw::first_rdma_address(why));
#endif
    return why;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Measures sluice beside the same loop on bare liburing, sockets or verbs, in the same run, and prints "
                 "the ratio. The runs of both take turns; figures are medians."};
    sluice::bench::settings s;
    bool all = false;
    app.add_option("-n,--iterations", s.iterations, "operations per run (default: by benchmark)");
    app.add_option("-r,--repeat", s.repeat, "runs of each contender")->capture_default_str()->check(CLI::Range(1, 1000));
    app.add_option("-s,--size", s.size_bytes, "bytes per operation (default: all sizes of the benchmark)");
    app.add_option("--depth", s.depth, "operations in flight (default: all depths of the benchmark)")->check(CLI::Range(1, 1024));
    app.add_option("--connections", s.connections, "connections of echo (default: 1, 64 and 1000)")->check(CLI::Range(1, 16000));
    app.add_option("--directory", s.directory, "where the file of `file` is made; needs direct I/O")->capture_default_str();
    app.add_option("--file-size", s.file_bytes, "its size in bytes")->capture_default_str()->check(CLI::Range(1 << 20, 1 << 30));
    app.add_option("--address", s.address, "rdma:// address of a device of this machine, for rdma-* (default: the first one that is found)");
    app.add_option("--wait", s.wait, "how the loops of rdma-* wait for completions")
        ->check(CLI::IsMember({"all", "poll", "event"}))->capture_default_str();
    app.add_flag("!--no-fio", s.with_fio, "leave fio out of `file`");
    app.add_option("--only", s.engine, "contenders to run; one alone serves profilers")
        ->check(CLI::IsMember({"all", "ours", "baseline"}))->capture_default_str();
    app.add_flag("--json", s.json, "one JSON object a line");
    app.require_subcommand(0);
    app.fallthrough();
    app.add_subcommand("all", "every benchmark")->callback([&] { all = true; });
    std::array<bool, commands.size()> wanted{};
    for (std::size_t i = 0; i < commands.size(); ++i)
        app.add_subcommand(commands[i].name, commands[i].what)->callback([&wanted, i] { wanted[i] = true; });
    CLI11_PARSE(app, argc, argv);

    sluice::bench::report out(s.json);
    bool any = false;
    for (std::size_t i = 0; i < commands.size(); ++i) {
        if (!all && !wanted[i]) continue;
        any = true;
        if (const std::string why = all ? why_not(commands[i], s) : ""; !why.empty()) {
            fmt::print(stderr, "sluice-bench: {} is left out: {}\n", commands[i].name, why);
            continue;
        }
        commands[i].run(s, out);
    }
    if (!any) {
        fmt::print("{}", app.help());
        return 1;
    }
    return 0;
}
