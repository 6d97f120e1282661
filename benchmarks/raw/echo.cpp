#include "benchmarks/raw/echo.hpp"

#include "benchmarks/bench.hpp"
#include "benchmarks/raw/ring.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace sluice::bench::raw {

void serve_with_epoll(std::span<const int> sockets) {
    const int poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) fail(fmt::format("epoll_create1: {}", std::strerror(errno)));
    for (const int fd : sockets) {
        epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &wanted) != 0) fail(fmt::format("epoll_ctl: {}", std::strerror(errno)));
    }
    std::array<epoll_event, 256> ready;
    std::array<std::byte, 4096> buffer;
    for (std::size_t open = sockets.size(); open > 0;) {
        const int count = epoll_wait(poller, ready.data(), static_cast<int>(ready.size()), -1);
        if (count < 0 && errno != EINTR) fail(fmt::format("epoll_wait: {}", std::strerror(errno)));
        for (int i = 0; i < count; ++i) {
            const int fd = ready[static_cast<std::size_t>(i)].data.fd;
            const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
            if (got <= 0) {
                epoll_ctl(poller, EPOLL_CTL_DEL, fd, nullptr);
                --open;
            } else if (send(fd, buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) != got) {
                fail(fmt::format("send: {}", std::strerror(errno)));
            }
        }
    }
    close(poller);
}

namespace {
struct client {
    int fd = -1;
    bool sending = false;
    std::array<std::byte, 4096> buffer;
};

void receive(ring& r, client& c) {
    io_uring_sqe* sqe = r.entry();
    io_uring_prep_recv(sqe, c.fd, c.buffer.data(), c.buffer.size(), 0);
    io_uring_sqe_set_data(sqe, &c);
    c.sending = false;
}

void send_back(ring& r, client& c, int bytes) {
    io_uring_sqe* sqe = r.entry();
    io_uring_prep_send(sqe, c.fd, c.buffer.data(), static_cast<std::size_t>(bytes), MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_data(sqe, &c);
    c.sending = true;
}
} // namespace

void serve_with_ring(std::span<const int> sockets) {
    ring r;
    std::vector<client> clients(sockets.size());
    for (std::size_t i = 0; i < sockets.size(); ++i) {
        clients[i].fd = sockets[i];
        receive(r, clients[i]);
    }
    for (std::size_t open = sockets.size(); open > 0;) {
        if (const int rc = io_uring_submit_and_wait(r.get(), 1); rc < 0 && rc != -EINTR)
            fail(fmt::format("io_uring_enter: {}", std::strerror(-rc)));
        unsigned head = 0;
        unsigned seen = 0;
        io_uring_cqe* cqe = nullptr;
        io_uring_for_each_cqe(r.get(), head, cqe) {
            ++seen;
            auto& c = *static_cast<client*>(io_uring_cqe_get_data(cqe));
            if (cqe->res <= 0) --open;
            else if (c.sending) receive(r, c);
            else send_back(r, c, cqe->res);
        }
        io_uring_cq_advance(r.get(), seen);
    }
}

} // namespace sluice::bench::raw
