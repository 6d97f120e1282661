#include "examples/object_store/demo/phases.hpp"

#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <sys/resource.h>

namespace demo {

namespace {

using clock = std::chrono::steady_clock;

double own_cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    constexpr double us_per_s = 1e6;
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / us_per_s;
}

struct phase {
    sluice::runtime& runtime;
    way direction;
    std::span<const item> items;
    const server_process& server;
    const store::client_options& options;
    measured& sum;
    std::size_t next = 0;
    std::vector<double> latencies_ms{};
    store::server_stats last{}; ///< the server's counters after the last session has ended its work
};

sluice::task<sluice::result<void>> move_one(phase& p, store::client& link, const item& one) {
    const auto started = clock::now();
    sluice::result<store::object_info> moved = sluice::errc::canceled;
    if (p.direction == way::put) moved = co_await link.put(one.source, one.key);
    else moved = co_await link.get(one.key, one.fetched);
    if (!moved) co_return sluice::error(moved.error().code(), fmt::format("{}: {}", one.key, moved.error().detail()));
    const std::chrono::duration<double, std::milli> took = clock::now() - started;
    p.latencies_ms.push_back(took.count());
    p.sum.bytes += moved->size_bytes;
    ++p.sum.objects;
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> work(phase& p) {
    auto link = co_await store::client::open(p.runtime, p.server.address(), p.options);
    if (!link) co_return std::move(link).error();
    while (p.next < p.items.size()) {
        auto moved = co_await move_one(p, *link, p.items[p.next++]);
        if (!moved) co_return std::move(moved).error();
    }
    // Over the same connection: so what it counted for this client is complete.
    auto counted = co_await link->server();
    if (!counted) co_return std::move(counted).error();
    p.last.file_direct_bytes = std::max(p.last.file_direct_bytes, counted->file_direct_bytes);
    p.last.file_buffered_bytes = std::max(p.last.file_buffered_bytes, counted->file_buffered_bytes);
    const sluice::connection_stats moved = link->stats();
    p.sum.tcp_bytes += moved.served_bytes + moved.send.bytes(sluice::path::tcp) + moved.receive.bytes(sluice::path::tcp);
    p.sum.file_direct_bytes += link->file_bytes(sluice::path::file_direct);
    p.sum.file_buffered_bytes += link->file_bytes(sluice::path::file_buffered);
    co_return co_await link->close();
}

sluice::task<sluice::result<store::server_stats>> counters(sluice::runtime& runtime, const server_process& server) {
    auto link = co_await store::client::open(runtime, server.address());
    if (!link) co_return std::move(link).error();
    auto now = co_await link->server();
    if (now) (void)co_await link->close();
    co_return now;
}

/// The same once the server has taken leave of all other clients, and so counted what they moved over the network.
sluice::task<sluice::result<store::server_stats>> final_counters(sluice::runtime& runtime, const server_process& server) {
    constexpr int looks = 1000;
    for (int look = 0;; ++look) {
        auto now = co_await counters(runtime, server);
        if (!now || now->clients == 1 || look == looks) co_return now;
        auto waited = co_await sluice::sleep_for(std::chrono::milliseconds(5));
        if (!waited) co_return std::move(waited).error();
    }
}

double percentile(const std::vector<double>& sorted, double part) {
    if (sorted.empty()) return 0;
    return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

} // namespace

sluice::task<sluice::result<measured>> run_phase(sluice::runtime& runtime, std::string name, way direction,
                                                 std::span<const item> items, const server_process& server,
                                                 std::size_t clients, const store::client_options& options) {
    auto before = co_await counters(runtime, server);
    if (!before) co_return std::move(before).error();
    measured sum{.name = std::move(name)};
    phase p{.runtime = runtime, .direction = direction, .items = items, .server = server, .options = options, .sum = sum};
    const double client_cpu = own_cpu_seconds();
    const double server_cpu = server.cpu_seconds();
    const auto started = clock::now();
    sluice::scope workers;
    for (std::size_t i = 0; i < std::min(clients, items.size()); ++i)
        workers.spawn(store::stop_others_on_error(workers, work(p)));
    auto joined = co_await workers.join();
    if (!joined) co_return std::move(joined).error();
    sum.seconds = std::chrono::duration<double>(clock::now() - started).count();
    auto after = co_await final_counters(runtime, server);
    if (!after) co_return std::move(after).error();
    sum.rdma_bytes = after->rdma_bytes - before->rdma_bytes;
    sum.client_cpu_seconds = own_cpu_seconds() - client_cpu;
    sum.server_cpu_seconds = server.cpu_seconds() - server_cpu;
    sum.file_direct_bytes += p.last.file_direct_bytes - before->file_direct_bytes;
    sum.file_buffered_bytes += p.last.file_buffered_bytes - before->file_buffered_bytes;
    std::ranges::sort(p.latencies_ms);
    constexpr double half = 0.5;
    constexpr double nearly_all = 0.99;
    sum.p50_ms = percentile(p.latencies_ms, half);
    sum.p99_ms = percentile(p.latencies_ms, nearly_all);
    co_return sum;
}

} // namespace demo
