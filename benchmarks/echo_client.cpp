#include "benchmarks/echo_client.hpp"

#include "benchmarks/bench.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace sluice::bench {

namespace {

[[noreturn]] void failed(const char* what) { fail(fmt::format("{}: {}", what, std::strerror(errno))); }

void no_delay(int fd) {
    const int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) failed("TCP_NODELAY");
}

/// Two descriptors for each connection, and some for the rest.
void want_descriptors(std::size_t connections) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t needed = 2 * connections + 64;
    if (limit.rlim_cur >= needed) return;
    if (limit.rlim_max < needed)
        fail(fmt::format("{} connections need {} descriptors, the limit is {}; raise it (ulimit -n)", connections, needed,
                         limit.rlim_max));
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

} // namespace

tcp_pairs::tcp_pairs(std::size_t count) {
    want_descriptors(count);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) failed("socket");
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof where;
    if (bind(listener, reinterpret_cast<sockaddr*>(&where), length) != 0) failed("bind");
    if (listen(listener, 16) != 0) failed("listen");
    if (getsockname(listener, reinterpret_cast<sockaddr*>(&where), &length) != 0) failed("getsockname");
    for (std::size_t i = 0; i < count; ++i) {
        const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (client < 0) failed("socket");
        clients_.push_back(client);
        if (connect(client, reinterpret_cast<sockaddr*>(&where), length) != 0) failed("connect");
        const int server = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (server < 0) failed("accept");
        servers_.push_back(server);
        no_delay(client);
        no_delay(server);
    }
    close(listener);
}

tcp_pairs::~tcp_pairs() {
    for (const int fd : clients_) close(fd);
    for (const int fd : servers_) close(fd);
}

void drive_echo(std::span<const int> sockets, std::size_t size_bytes, std::uint64_t operations) {
    const int poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) failed("epoll_create1");
    std::vector<std::byte> message(size_bytes, std::byte{42});
    std::vector<std::byte> answer(size_bytes);
    std::uint64_t sent = 0;
    const auto send_one = [&](int fd) {
        if (send(fd, message.data(), size_bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(size_bytes)) failed("send");
        ++sent;
    };
    for (const int fd : sockets) {
        epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &wanted) != 0) failed("epoll_ctl");
        if (sent < operations) send_one(fd);
    }
    std::array<epoll_event, 256> ready;
    for (std::uint64_t answered = 0; answered < operations;) {
        const int count = epoll_wait(poller, ready.data(), static_cast<int>(ready.size()), -1);
        if (count < 0 && errno != EINTR) failed("epoll_wait");
        for (int i = 0; i < count; ++i) {
            const int fd = ready[static_cast<std::size_t>(i)].data.fd;
            if (recv(fd, answer.data(), size_bytes, MSG_WAITALL) != static_cast<ssize_t>(size_bytes)) failed("recv");
            if (answer.back() != message.back()) fail("echo: the answer is not what was sent");
            ++answered;
            if (sent < operations) send_one(fd);
        }
    }
    close(poller);
}

void pin_thread(unsigned cpu) noexcept {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    static_cast<void>(sched_setaffinity(0, sizeof set, &set)); // a machine with fewer CPUs measures all the same
}

} // namespace sluice::bench
