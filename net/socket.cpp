#include "net/socket.hpp"

#include "net/text.hpp"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice::net {

namespace {

error refused(int errno_value, const char* what, const endpoint& e) {
    return error::from_errno(errno_value, std::string(what) + " " + to_string(e));
}

result<void> set_option(int fd, int level, int name, int value, const char* text) noexcept {
    if (setsockopt(fd, level, name, &value, sizeof value) == 0) return {};
    return error::from_errno(errno, std::string("setsockopt ") + text + " = " + std::to_string(value));
}

bool is_tcp(int fd) noexcept {
    int domain = 0;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain != AF_UNIX;
}

/// Takes the error that the socket has stored, 0 for none [socket(7) SO_ERROR].
int take_stored_error(int fd) noexcept {
    int value = 0;
    socklen_t bytes = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &bytes) != 0) return errno;
    return value;
}

bool is_connected(int fd) noexcept {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0;
}

/// Removes the path of a unix listener that died without removing it: a socket on which nobody listens.
bool remove_dead_path(const endpoint& on) {
    const std::string path = on.to_address(scheme::tcp).unix_path;
    struct stat found {};
    if (path.starts_with('@') || lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
    const auto probe = stream_socket::adopt(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe || ::connect(probe.fd(), on.get(), on.length) == 0 || errno != ECONNREFUSED) return false;
    return unlink(path.c_str()) == 0;
}

/// EADDRINUSE says of a unix path only that something is there.
error in_the_way(const endpoint& on) {
    error busy = refused(EADDRINUSE, "listen on", on);
    const std::string path = on.to_address(scheme::tcp).unix_path;
    struct stat found {};
    if (path.starts_with('@') || lstat(path.c_str(), &found) != 0) return busy;
    const char* what = S_ISSOCK(found.st_mode)  ? "another process listens there, or this one may not ask"
                       : S_ISREG(found.st_mode) ? "a file is there, not a socket; use another path or remove it"
                       : S_ISDIR(found.st_mode) ? "a directory is there; name a socket in it"
                                                : "something else than a socket is there; use another path or remove it";
    return {busy.code(), std::string(busy.detail()) + ": " + what};
}

} // namespace

stream_socket stream_socket::adopt(int fd) noexcept {
    stream_socket made;
    made.state_.fd = fd;
    return made;
}

result<stream_socket> stream_socket::create(int family) {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return error::from_errno(errno, "socket");
    return adopt(fd);
}

task<result<void>> stream_socket::connect(endpoint to) {
    SLUICE_EXPECTS(state_.fd >= 0, "stream: connect of a closed socket");
    for (bool again = false;; again = true) {
        const int rc = -co_await connect_request(state_, to);
        switch (rc) {
        case 0: co_return {};
        case EINPROGRESS: // the kernel's retries of a request in progress can let these out
        case EALREADY:
        case EINTR: {
            auto writable = co_await readiness(state_.fd, POLLOUT);
            if (!writable) co_return std::move(writable).error();
            break;
        }
        case EISCONN:
        case ECONNABORTED: break;
        default: co_return refused(rc, "connect to", to);
        }
        if (const int stored = take_stored_error(state_.fd); stored != 0) co_return refused(stored, "connect to", to);
        if (is_connected(state_.fd)) co_return {};
        // ECONNABORTED without a stored error: an earlier attempt's failure was read away. The next one is fresh.
        if (again) co_return refused(rc, "connect to", to);
    }
}

result<void> stream_socket::set_no_delay(bool on) noexcept {
    if (!is_tcp(state_.fd)) return {};
    return set_option(state_.fd, IPPROTO_TCP, TCP_NODELAY, on ? 1 : 0, "TCP_NODELAY");
}

result<void> stream_socket::set_peer_timeout(std::chrono::nanoseconds t) noexcept {
    using namespace std::chrono;
    SLUICE_EXPECTS(t >= seconds(1), "stream: a peer timeout below a second");
    if (!is_tcp(state_.fd)) return {};
    constexpr std::int64_t probes = 3;
    constexpr std::int64_t seconds_max = 32767; // of TCP_KEEPIDLE and TCP_KEEPINTVL
    const std::int64_t whole = duration_cast<seconds>(t).count();
    const auto idle = static_cast<int>(std::clamp<std::int64_t>(whole / 2, 1, seconds_max));
    const auto interval = static_cast<int>(std::clamp<std::int64_t>((whole - idle) / probes, 1, seconds_max));
    const auto unanswered_ms = static_cast<int>(std::min<std::int64_t>(duration_cast<milliseconds>(t).count(), INT32_MAX));
    return set_option(state_.fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE")
        .and_then([&] { return set_option(state_.fd, IPPROTO_TCP, TCP_KEEPIDLE, idle, "TCP_KEEPIDLE"); })
        .and_then([&] { return set_option(state_.fd, IPPROTO_TCP, TCP_KEEPINTVL, interval, "TCP_KEEPINTVL"); })
        .and_then([&] { return set_option(state_.fd, IPPROTO_TCP, TCP_KEEPCNT, probes, "TCP_KEEPCNT"); })
        .and_then([&] {
            return set_option(state_.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms, "TCP_USER_TIMEOUT");
        });
}

void stream_socket::shutdown_both() noexcept {
    // By the system call: the ring would hand it to a worker thread. Of a peer that went first it says ENOTCONN.
    if (state_.fd >= 0) static_cast<void>(::shutdown(state_.fd, SHUT_RDWR));
}

void stream_socket::reset() noexcept {
    if (state_.fd < 0) return;
    const linger now{.l_onoff = 1, .l_linger = 0};
    static_cast<void>(setsockopt(state_.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    close();
}

task<result<stream_socket>> connect_first(std::span<const endpoint> to) {
    SLUICE_EXPECTS(!to.empty(), "stream: connect to no address");
    for (std::size_t i = 0;; ++i) {
        auto made = stream_socket::create(to[i].family());
        if (!made && i + 1 == to.size()) co_return refused(made.error().code().value(), "connect to", to[i]);
        if (!made) continue;
        auto connected = co_await made->connect(to[i]);
        if (connected) co_return std::move(*made);
        if (i + 1 == to.size() || connected.error() == condition::canceled) co_return std::move(connected).error();
    }
}

result<stream_socket> listening_socket(const endpoint& on, const stream_listen_options& options) {
    auto made = stream_socket::create(on.family());
    if (!made) return refused(made.error().code().value(), "listen on", on);
    const int fd = made->fd();
    if (on.family() != AF_UNIX) {
        if (auto ok = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"); !ok) return std::move(ok).error();
        if (options.reuse_port)
            if (auto ok = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1, "SO_REUSEPORT"); !ok) return std::move(ok).error();
    }
    if (on.family() == AF_INET6) // the machine's default must not decide whether [::] takes IPv4
        if (auto ok = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0, "IPV6_V6ONLY"); !ok) return std::move(ok).error();
    int rc = ::bind(fd, on.get(), on.length);
    if (rc != 0 && errno == EADDRINUSE && on.family() == AF_UNIX) {
        if (!remove_dead_path(on)) return in_the_way(on);
        rc = ::bind(fd, on.get(), on.length);
    }
    if (rc != 0) return refused(errno, "listen on", on);
    const auto backlog = static_cast<int>(std::min<std::uint32_t>(options.backlog, INT32_MAX));
    if (::listen(fd, backlog) != 0) return refused(errno, "listen on", on);
    return made;
}

} // namespace sluice::net
