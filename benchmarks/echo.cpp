// TCP echo: CPU time of the server's thread per message, of three servers that one client drives in the same way.
#include "benchmarks/echo_client.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/echo.hpp"

#include "net/socket.hpp"

#include <sluice/scope.hpp>

#include <array>
#include <fmt/format.h>
#include <functional>
#include <future>
#include <pthread.h>
#include <thread>

namespace sluice::bench {

namespace {

task<void> echo_one(net::stream_socket& peer) {
    std::array<std::byte, 4096> buffer;
    for (;;) {
        const auto got = co_await peer.read_some(buffer);
        if (!got || *got == 0) co_return;
        const auto sent = co_await peer.write_all(std::span(buffer).first(*got));
        if (!sent) co_return;
    }
}

task<void> echo_all(std::vector<net::stream_socket>& peers) {
    scope clients;
    for (net::stream_socket& peer : peers) clients.spawn(echo_one(peer));
    const auto done = co_await clients.join();
    if (!done) fail("echo: " + done.error().message());
}

using server = std::function<void(std::span<const int>)>;

/// Sluice's streams own their descriptors, so they get copies.
void serve_with_sluice(std::span<const int> sockets) {
    const auto home = make_executor();
    std::vector<net::stream_socket> peers;
    peers.reserve(sockets.size());
    for (const int fd : sockets) peers.push_back(net::stream_socket::adopt(dup(fd)));
    sync_wait(*home, echo_all(peers));
}

std::chrono::nanoseconds cpu_time_of(pthread_t thread) {
    clockid_t clock{};
    timespec now{};
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &now) != 0) fail("echo: no CPU clock of a thread");
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

struct load {
    unsigned connections;
    std::size_t size_bytes;
    std::uint64_t operations;
};

/// CPU time of the server per message: from when all connections are up and warm until the last answer.
double cpu_ns_per_message(const load& l, const server& serve) {
    tcp_pairs sockets(l.connections);
    std::thread serving([&] {
        pin_thread(0);
        serve(sockets.servers());
    });
    double used_ns = 0;
    std::thread client([&] {
        pin_thread(1);
        drive_echo(sockets.clients(), l.size_bytes, std::max<std::uint64_t>(l.operations / 10, l.connections));
        const auto before = cpu_time_of(serving.native_handle());
        drive_echo(sockets.clients(), l.size_bytes, l.operations);
        used_ns = static_cast<double>((cpu_time_of(serving.native_handle()) - before).count());
        for (const int fd : sockets.clients()) shutdown(fd, SHUT_WR);
    });
    client.join();
    serving.join();
    return used_ns / static_cast<double>(l.operations);
}

void run_connections(const settings& s, report& out, unsigned connections) {
    const load l{.connections = connections,
                 .size_bytes = s.size_bytes != 0 ? s.size_bytes : 64,
                 .operations = s.iterations_or(connections == 1 ? 5'000 : 20'000)};
    if (l.size_bytes > 4096) fail("echo: messages of at most 4096 bytes; see --size");
    const auto figures = interleave(
        s.repeat,
        {if_wanted(s.wants_ours(), [&] { return cpu_ns_per_message(l, serve_with_sluice); }),
         if_wanted(s.wants_baseline(), [&] { return cpu_ns_per_message(l, raw::serve_with_epoll); }),
         if_wanted(s.wants_baseline(), [&] { return cpu_ns_per_message(l, raw::serve_with_ring); })});
    const bool epoll_is_better = median(figures[1]) <= median(figures[2]);
    const std::string name = fmt::format("echo.server_cpu_{}", connections);
    row epoll = compare(name, "ns/msg", figures[0], "bare epoll server", figures[1]);
    row ring = compare(name, "ns/msg", figures[0], "bare ring server", figures[2]);
    (epoll_is_better ? epoll : ring).target = 1.05;
    out.add(epoll);
    out.add(ring);
}

} // namespace

void run_echo(const settings& s, report& out) {
    if (s.connections != 0) {
        run_connections(s, out, s.connections);
        return;
    }
    for (const unsigned connections : {1U, 64U, 1000U}) run_connections(s, out, connections);
}

} // namespace sluice::bench
