// One-sided operations and messages over RDMA, beside a loop on bare verbs over the same device, at the same depth and
// with the same way to wait for completions.
#include "benchmarks/measure.hpp"
#include "benchmarks/message_ends.hpp"
#include "benchmarks/raw/verbs.hpp"
#include "benchmarks/transfer_ends.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <thread>

namespace sluice::bench {

namespace {

// While it looks, an executor with `poll` never sleeps in a run; between two runs it does, before the other
// contender's.
constexpr std::chrono::milliseconds looks_for{20};
constexpr std::chrono::milliseconds rest{25};
// A run should last about so long: long beside what starts it, short enough for many.
constexpr std::chrono::milliseconds run_length{100};
constexpr std::uint64_t operations_most = 1'000'000;

enum class kind { read, write, send };

const char* name_of(kind what) {
    return what == kind::read ? "rdma-read" : what == kind::write ? "rdma-write" : "rdma-send";
}

/// What one row compares: a run of each contender, which gives what its client's thread has seen.
struct contenders {
    std::function<run_figures(std::uint64_t operations)> ours;
    std::function<run_figures(std::uint64_t operations)> bare;
};

struct setting {
    kind what;
    work load;
    raw::wait how;
    std::string address;
};

runtime make_runtime(const setting& s) {
    runtime_options o;
    o.pool_bytes = std::max<std::size_t>(8 << 20, 4 * s.load.size_bytes * s.load.depth);
    o.pin = false; // as the threads of the bare loop are not
    if (s.how == raw::wait::poll) o.executor.busy_poll = looks_for;
    auto made = runtime::create(o);
    return must(std::move(made), "runtime");
}

template <class Run>
run_figures timed(Run&& run) {
    const stopwatch watch;
    run();
    return watch.read();
}

/// So many operations that a run of the bare loop takes about run_length.
std::uint64_t usual_operations(const setting& s, const contenders& two) {
    const std::uint64_t some = std::uint64_t{8} * s.load.depth;
    two.bare(some);
    const double each = static_cast<double>(two.bare(some).wall.count()) / static_cast<double>(some);
    const double wanted = std::chrono::duration<double, std::nano>(run_length).count() / std::max(each, 1.0);
    return std::clamp(static_cast<std::uint64_t>(wanted), some, operations_most);
}

void compare_both(const settings& s, report& out, const setting& now, const contenders& two) {
    const unsigned depth = now.load.depth;
    const std::uint64_t operations =
        std::max<std::uint64_t>((s.iterations != 0 ? s.iterations : usual_operations(now, two)) / depth, 1) * depth;
    std::vector<double> ours_cpu;
    std::vector<double> bare_cpu;
    std::uint64_t allocations = 0; // of the latest run
    // Microseconds of one operation where one is under way at a time, else operations per second.
    const auto measure = [&](const auto& run, std::vector<double>& cpu) {
        std::this_thread::sleep_for(rest);
        const run_figures seen = run(operations);
        cpu.push_back(static_cast<double>(seen.cpu.count()) / static_cast<double>(operations));
        allocations = seen.allocations;
        const double seconds = std::chrono::duration<double>(seen.wall).count();
        return depth == 1 ? seconds * 1e6 / static_cast<double>(operations) : static_cast<double>(operations) / seconds;
    };
    std::uint64_t ours_allocations = 0;
    const auto figures =
        interleave(s.repeat, {if_wanted(s.wants_ours(),
                                        [&] {
                                            const double figure = measure(two.ours, ours_cpu);
                                            ours_allocations = allocations;
                                            return figure;
                                        }),
                              if_wanted(s.wants_baseline(), [&] { return measure(two.bare, bare_cpu); })});
    for (auto* cpu : {&ours_cpu, &bare_cpu})
        if (!cpu->empty()) cpu->erase(cpu->begin()); // the warm-up
    const std::string name = fmt::format("{}.{}_depth{}_{}", name_of(now.what), text_of_size(now.load.size_bytes),
                                         depth, raw::to_string(now.how));
    row r = compare(name, depth == 1 ? "us" : "op/s", figures[0], "bare verbs", figures[1]);
    r.higher_is_better = depth > 1;
    r.target = depth == 1 ? 1.05 : 0.95;
    if (s.wants_ours())
        r.allocations_per_operation = static_cast<double>(ours_allocations) / static_cast<double>(operations);
    out.add(r);
    if (now.how == raw::wait::event) // else the thread is busy all the time
        out.add(compare(name + "_cpu", "ns/op", ours_cpu, "bare verbs", bare_cpu));
}

void run_one_sided(const settings& s, report& out, const setting& now) {
    const direction way = now.what == kind::read ? direction::read : direction::write;
    const ibv_wr_opcode bare_way = now.what == kind::read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    setting serving = now;
    serving.how = raw::wait::event; // nothing of it runs meanwhile
    runtime servers = make_runtime(serving);
    runtime clients = make_runtime(now);
    sharing_server server(servers, 0, now.address, now.load.size_bytes * now.load.depth);
    one_sided_client ours(clients, now.load, server.address());
    raw::one_sided_loop bare(now.address, {.size_bytes = now.load.size_bytes, .depth = now.load.depth, .how = now.how});
    compare_both(s, out, now,
                 {.ours = [&](std::uint64_t n) { return ours.run(way, path::rdma, n); },
                  .bare = [&](std::uint64_t n) { return timed([&] { bare.run(bare_way, n); }); }});
}

void run_messages(const settings& s, report& out, const setting& now) {
    runtime servers = make_runtime(now);
    runtime clients = make_runtime(now);
    message_server server(servers, now.load, now.address);
    message_client ours(clients, now.load, server.address());
    raw::send_loop bare(now.address, now.load.size_bytes, now.load.depth, now.how);
    compare_both(s, out, now,
                 {.ours = [&](std::uint64_t n) { return ours.run(path::rdma, n); },
                  .bare = [&](std::uint64_t n) { return timed([&] { bare.run(n); }); }});
}

void run_kind(const settings& s, report& out, kind what) {
    std::string why;
    const std::string address = s.address.empty() ? raw::first_rdma_address(why) : s.address;
    if (address.empty()) fail(why);
    std::vector<std::size_t> sizes{64, 4096, 65536};
    if (s.size_bytes != 0) sizes = {s.size_bytes};
    std::vector<unsigned> depths{1, 16};
    if (s.depth != 0) depths = {s.depth};
    std::vector<raw::wait> ways{raw::wait::poll, raw::wait::event};
    if (s.wait != "all") std::erase_if(ways, [&](raw::wait how) { return s.wait != raw::to_string(how); });
    for (const std::size_t size : sizes)
        for (const unsigned depth : depths)
            for (const raw::wait how : ways) {
                const setting now{.what = what,
                                  .load = {.size_bytes = size, .depth = depth, .operations = 0},
                                  .how = how,
                                  .address = address};
                (what == kind::send ? run_messages : run_one_sided)(s, out, now);
            }
}

} // namespace

void run_rdma_read(const settings& s, report& out) { run_kind(s, out, kind::read); }
void run_rdma_write(const settings& s, report& out) { run_kind(s, out, kind::write); }
void run_rdma_send(const settings& s, report& out) { run_kind(s, out, kind::send); }

} // namespace sluice::bench
