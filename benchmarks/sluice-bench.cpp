#include "benchmarks/bench.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <fmt/format.h>

namespace {

struct command {
    const char* name;
    const char* what;
    void (*run)(const sluice::bench::settings&, sluice::bench::report&);
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
};

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Measures sluice beside the same loop on bare liburing or bare sockets, in the same run, and prints "
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
        commands[i].run(s, out);
        any = true;
    }
    if (!any) {
        fmt::print("{}", app.help());
        return 1;
    }
    return 0;
}
