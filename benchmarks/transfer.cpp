// One-sided reads and writes through a connection, beside a bare stream of send() and recv() over the same loopback.
#include "benchmarks/echo_client.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/stream.hpp"

#include <sluice/connection.hpp>
#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>

#include <array>
#include <fmt/format.h>
#include <optional>
#include <sys/resource.h>
#include <thread>

namespace sluice::bench {

namespace {

enum class direction { read, write };

struct work {
    direction way;
    std::size_t size_bytes;
    unsigned depth;
    std::uint64_t operations;
};

template <class T>
T must(result<T> r, const char* what) {
    if (!r) fail(fmt::format("{}: {}", what, r.error().message()));
    if constexpr (!std::is_void_v<T>) return std::move(*r);
}

/// The other side: shares memory for each client, says where, and waits until it has gone.
class sharing_server {
public:
    sharing_server(runtime& rt, std::size_t memory_bytes) : runtime_(rt), memory_bytes_(memory_bytes) {
        listener_ = rt.sync_wait(start(rt), 1);
        thread_ = std::thread([this] { runtime_.sync_wait(serve(*this), 1); });
    }
    ~sharing_server() { thread_.join(); }
    sharing_server(const sharing_server&) = delete;
    sharing_server& operator=(const sharing_server&) = delete;
    std::string address() const { return listener_.address().to_string(); }

private:
    static task<listener> start(runtime& rt) {
        auto made = co_await rt.listen("tcp://127.0.0.1:0");
        co_return must(std::move(made), "listen");
    }
    /// One client after another would be possible; a benchmark has one.
    static task<void> serve(sharing_server& self) {
        auto accepted = co_await self.listener_.accept();
        connection peer = must(std::move(accepted), "accept");
        auto leased = co_await self.runtime_.pool().allocate(self.memory_bytes_);
        const pooled_buffer memory = must(std::move(leased), "pool");
        auto sharing = co_await peer.share(memory, access::remote_read | access::remote_write);
        const shared_region shared = must(std::move(sharing), "share");
        auto told = co_await peer.send(shared.description());
        must(std::move(told), "send");
        auto gone = co_await peer.closed();
        must(std::move(gone), "closed");
        self.listener_.close();
        self.listener_ = {};
    }

    runtime& runtime_;
    std::size_t memory_bytes_;
    listener listener_;
    std::thread thread_;
};

/// A connection with `depth` blocks of memory at both ends.
class client {
public:
    client(runtime& rt, const work& w, std::string to) : runtime_(rt), work_(w) { rt.sync_wait(connect(*this, std::move(to))); }
    ~client() { runtime_.sync_wait(leave(*this)); }
    client(const client&) = delete;
    client& operator=(const client&) = delete;

    void run() {
        const std::uint64_t before = bytes();
        runtime_.sync_wait(run_all(*this));
        if (bytes() - before != work_.operations * work_.size_bytes)
            fail("transfer: the byte counters of path tcp don't tell what was moved");
    }

private:
    std::uint64_t bytes() const {
        const connection_stats s = connection_.stats();
        return (work_.way == direction::read ? s.read : s.write).bytes(path::tcp);
    }
    static task<void> connect(client& self, std::string to) {
        auto made = co_await self.runtime_.connect(to);
        self.connection_ = must(std::move(made), "connect");
        auto told = co_await self.connection_.receive<remote_region>();
        self.remote_ = must(std::move(told), "receive");
        auto leased = co_await self.runtime_.pool().allocate(self.work_.size_bytes * self.work_.depth);
        self.memory_ = must(std::move(leased), "pool");
    }
    static task<void> leave(client& self) {
        auto closed = co_await self.connection_.close();
        must(std::move(closed), "close");
        self.memory_.reset();
        self.connection_ = {};
    }
    static task<void> lane(client& self, unsigned index, std::uint64_t operations) {
        const std::size_t size = self.work_.size_bytes;
        const region_view here = self.memory_.subview(index * size, size);
        const remote_view there = self.remote_.subview(index * size, size);
        for (std::uint64_t i = 0; i < operations; ++i) {
            if (self.work_.way == direction::read) {
                auto done = co_await self.connection_.read(there, here);
                must(std::move(done), "read");
            } else {
                auto done = co_await self.connection_.write(there, here);
                must(std::move(done), "write");
            }
        }
    }
    static task<void> run_all(client& self) {
        scope lanes;
        for (unsigned i = 0; i < self.work_.depth; ++i) lanes.spawn(lane(self, i, self.work_.operations / self.work_.depth));
        auto done = co_await lanes.join();
        must(std::move(done), "transfer");
    }

    runtime& runtime_;
    const work& work_;
    connection connection_;
    remote_region remote_;
    pooled_buffer memory_;
};

/// User and system time of the whole process: both ends.
double process_cpu_ns() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto ns = [](const timeval& t) { return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_usec) * 1e3; };
    return ns(used.ru_utime) + ns(used.ru_stime);
}

std::string text_of(std::size_t bytes) {
    if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return fmt::format("{}MiB", bytes >> 20);
    if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{}KiB", bytes >> 10);
    return fmt::format("{}B", bytes);
}

std::uint64_t usual_operations(std::size_t size_bytes) {
    if (size_bytes <= 4096) return 16'000;
    return std::max<std::uint64_t>((std::uint64_t{128} << 20) / size_bytes, 16);
}

void run_size(const settings& s, report& out, direction way, std::size_t size_bytes) {
    const unsigned depth = s.depth != 0 ? s.depth : 16;
    const work w{.way = way,
                 .size_bytes = size_bytes,
                 .depth = depth,
                 .operations = std::max<std::uint64_t>(s.iterations_or(usual_operations(size_bytes)) / depth, 1) * depth};
    // Not pinned, as the threads of the stream are not.
    auto made = runtime::create({.executors = 2, .pool_bytes = std::max<std::size_t>(8 << 20, 4 * size_bytes * depth), .pin = false});
    runtime rt = must(std::move(made), "runtime");
    sharing_server server(rt, size_bytes * depth);
    client ours(rt, w, server.address());
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
        s.repeat, {if_wanted(s.wants_ours(), [&] { return measure([&] { ours.run(); }, ours_cpu); }),
                   if_wanted(s.wants_baseline(), [&] { return measure([&] { bare.run(w.operations); }, bare_cpu); })});
    if (!ours_cpu.empty()) ours_cpu.erase(ours_cpu.begin()); // the warm-up
    if (!bare_cpu.empty()) bare_cpu.erase(bare_cpu.begin());

    const std::string name = fmt::format("{}.{}_depth{}", way == direction::read ? "read" : "write", text_of(size_bytes), depth);
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
