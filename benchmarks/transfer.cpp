// One-sided reads and writes through a connection, beside a bare stream of send() and recv() over the same loopback.
#include "benchmarks/echo_client.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/stream.hpp"
#include "benchmarks/transfer_ends.hpp"

#include <sluice/runtime.hpp>

#include <fmt/format.h>
#include <sys/resource.h>

namespace sluice::bench {

namespace {

/// User and system time of the whole process: both ends.
double process_cpu_ns() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto ns = [](const timeval& t) { return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_usec) * 1e3; };
    return ns(used.ru_utime) + ns(used.ru_stime);
}

std::uint64_t usual_operations(std::size_t size_bytes) {
    if (size_bytes <= 4096) return 16'000;
    return std::max<std::uint64_t>((std::uint64_t{128} << 20) / size_bytes, 16);
}

void run_size(const settings& s, report& out, direction way, std::size_t size_bytes) {
    const unsigned depth = s.depth != 0 ? s.depth : 16;
    const work w{.size_bytes = size_bytes,
                 .depth = depth,
                 .operations = std::max<std::uint64_t>(s.iterations_or(usual_operations(size_bytes)) / depth, 1) * depth};
    // Not pinned, as the threads of the stream are not.
    auto made = runtime::create({.executors = 2, .pool_bytes = std::max<std::size_t>(8 << 20, 4 * size_bytes * depth), .pin = false});
    runtime rt = must(std::move(made), "runtime");
    sharing_server server(rt, 1, "tcp://127.0.0.1:0", size_bytes * depth);
    one_sided_client ours(rt, w, server.address());
    const tcp_pairs sockets(1);
    raw::stream bare(sockets.servers()[0], sockets.clients()[0], size_bytes, depth);

    std::vector<double> ours_cpu;
    std::vector<double> bare_cpu;
    const auto measure = [&](auto&& run, std::vector<double>& cpu) {
        const double cpu_before = process_cpu_ns();
        const auto start = std::chrono::steady_clock::now();
        run();
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        cpu.push_back((process_cpu_ns() - cpu_before) / static_cast<double>(w.operations));
        return static_cast<double>(w.operations * size_bytes) / time.count() / 1e6;
    };
    const auto seen = interleave(
        s.repeat, {if_wanted(s.wants_ours(), [&] { return measure([&] { ours.run(way, path::tcp, w.operations); }, ours_cpu); }),
                   if_wanted(s.wants_baseline(), [&] { return measure([&] { bare.run(w.operations); }, bare_cpu); })});
    if (!ours_cpu.empty()) ours_cpu.erase(ours_cpu.begin()); // the warm-up
    if (!bare_cpu.empty()) bare_cpu.erase(bare_cpu.begin());

    const std::string name = fmt::format("{}.{}_depth{}", way == direction::read ? "read" : "write", text_of_size(size_bytes), depth);
    row r = compare(name, "MB/s", seen[0], "send/recv stream", seen[1]);
    r.higher_is_better = true;
    if (way == direction::read && size_bytes == 1 << 20) r.target = 0.9;
    out.add(r);
    out.add(compare(name + "_cpu", "ns/op", ours_cpu, "send/recv stream, both ends", bare_cpu));
}

void run_way(const settings& s, report& out, direction way) {
    if (s.size_bytes != 0) {
        run_size(s, out, way, s.size_bytes);
        return;
    }
    for (const std::size_t size : {std::size_t{64}, std::size_t{4096}, std::size_t{64} << 10, std::size_t{1} << 20})
        run_size(s, out, way, size);
}

} // namespace

void run_read(const settings& s, report& out) { run_way(s, out, direction::read); }
void run_write(const settings& s, report& out) { run_way(s, out, direction::write); }

} // namespace sluice::bench
