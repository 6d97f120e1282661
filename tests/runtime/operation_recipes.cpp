#include "tests/runtime/operation_recipes.hpp"

#include "runtime/engine.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <memory>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace sluice::testing {

namespace {

int check(int rc, const char* what) {
    if (rc < 0) throw std::system_error(errno, std::generic_category(), what);
    return rc;
}

std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

constexpr std::uint32_t size = 16;

[[noreturn]] void no_recipe(opcode code) {
    throw std::logic_error(std::string("no recipe for the operation ") + detail::operation_name(code));
}

} // namespace

bool raw_operation::step(operation& op) noexcept {
    auto& self = static_cast<raw_operation&>(op);
    if (self.completions_++ == 0) self.value_ = self.result_;
    if ((self.flags_ & IORING_CQE_F_MORE) != 0) return false;
    self.result_ = self.value_;
    return true;
}

world::world(executor& home) : home_(home) {
    file_ = keep(check(open((dir_ / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), "open"));
    check(static_cast<int>(pwrite(file_, memory_.data(), memory_.size(), 0)), "pwrite");
    vector_ = {memory_.data(), size};
    message_.msg_iov = &vector_;
    message_.msg_iovlen = 1;
    listener_ = tcp_listener(1024, target_);
    const auto pair = tcp_pair();
    fed_ = pair[0];
    drain_ = pair[1];
}

world::~world() {
    if (buffers_registered_) home_.ring().unregister_buffers(0, 1);
    for (const int fd : fds_) close(fd);
    close_leftovers();
}

int world::keep(int fd) {
    fds_.push_back(fd);
    return fd;
}

void world::close_leftovers() {
    for (const int fd : std::exchange(to_be_closed_, {})) close(fd);
}

void world::clean_up(opcode code, std::int32_t result) {
    if (code == opcode::openat || code == opcode::openat2 || code == opcode::accept) close(result);
}

std::string& world::name(const char* prefix) {
    names_.push_back(std::make_unique<std::string>(dir_ / (prefix + std::to_string(count_++))));
    return *names_.back();
}

int world::tcp_listener(int backlog, sockaddr_in& address) {
    const int fd = keep(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    check(listen(fd, backlog), "listen");
    socklen_t length = sizeof address;
    check(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), "getsockname");
    return fd;
}

std::array<int, 2> world::tcp_pair() {
    sockaddr_in address{};
    const int on = tcp_listener(1, address);
    const int a = keep(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    check(connect(a, reinterpret_cast<sockaddr*>(&address), sizeof address), "connect");
    const int b = keep(check(accept4(on, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
    const int yes = 1; // a zero-copy send ends when it is acknowledged, which is put off for 40 ms otherwise
    check(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), "TCP_NODELAY");
    check(setsockopt(b, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes), "TCP_QUICKACK");
    return {a, b};
}

int world::full_pipe() {
    std::array<int, 2> ends{};
    check(pipe2(ends.data(), O_CLOEXEC), "pipe2");
    keep(ends[0]);
    keep(ends[1]);
    check(fcntl(ends[1], F_SETPIPE_SZ, 4096), "F_SETPIPE_SZ");
    check(static_cast<int>(write(ends[1], memory_.data(), memory_.size())), "write");
    return ends[1];
}

int world::full_socket() {
    const auto pair = tcp_pair();
    std::vector<std::byte> filler(1 << 16);
    for (std::size_t chunk = filler.size(); chunk > 0; chunk /= 2)
        while (::send(pair[0], filler.data(), chunk, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        }
    return pair[0];
}

sluice::request world::on_memory(opcode code, int fd) {
    sluice::request r{.code = code, .fd = fd, .address = address_of(memory_.data()), .length = size};
    if (code == opcode::readv || code == opcode::writev) {
        r.address = address_of(&vector_);
        r.length = 1;
    }
    if ((code == opcode::read_fixed || code == opcode::write_fixed) && !std::exchange(buffers_registered_, true)) {
        const std::array<iovec, 1> buffers{{{memory_.data(), memory_.size()}}};
        home_.ring().register_buffers(0, buffers).value();
    }
    return r;
}

sluice::request world::socket_request(opcode code, int fd) {
    sluice::request r{.code = code, .fd = fd, .address = address_of(memory_.data()), .length = size};
    if (code == opcode::sendmsg || code == opcode::recvmsg || code == opcode::sendmsg_zc) {
        r.address = address_of(&message_);
        r.length = 1;
    }
    if (code != opcode::recv && code != opcode::recvmsg) r.op_flags = MSG_NOSIGNAL;
    return r;
}

sluice::request world::working(opcode code) {
    using enum opcode;
    switch (code) {
    case nop: return {};
    case read:
    case write:
    case readv:
    case writev:
    case read_fixed:
    case write_fixed: return on_memory(code, file_);
    case fsync: return {.code = code, .fd = file_};
    case fallocate: return {.code = code, .fd = file_, .address = 4096};
    case openat:
        return {.code = code, .fd = AT_FDCWD, .address = address_of(name("made").c_str()), .length = 0600,
                .op_flags = O_RDWR | O_CREAT | O_CLOEXEC};
    case openat2:
        how_ = {O_RDWR | O_CREAT | O_CLOEXEC, 0600, 0};
        return {.code = code, .fd = AT_FDCWD, .offset = address_of(how_.data()),
                .address = address_of(name("made").c_str()), .length = sizeof how_};
    case close: {
        const int fd = check(fcntl(file_, F_DUPFD_CLOEXEC, 0), "dup");
        to_be_closed_.push_back(fd);
        return {.code = code, .fd = fd};
    }
    case statx:
        return {.code = code, .fd = file_, .offset = address_of(status_.data()), .address = address_of(""),
                .length = 0x7ff, .op_flags = AT_EMPTY_PATH};
    case renameat: {
        const std::string& from = name("from");
        ::close(check(::open(from.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), "open"));
        return {.code = code, .fd = AT_FDCWD, .offset = address_of(name("to").c_str()),
                .address = address_of(from.c_str()), .length = static_cast<std::uint32_t>(AT_FDCWD)};
    }
    case unlinkat: {
        const std::string& victim = name("victim");
        ::close(check(::open(victim.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), "open"));
        return {.code = code, .fd = AT_FDCWD, .address = address_of(victim.c_str())};
    }
    case mkdirat: return {.code = code, .fd = AT_FDCWD, .address = address_of(name("folder").c_str()), .length = 0700};
    case accept: {
        const int client = keep(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
        check(::connect(client, reinterpret_cast<sockaddr*>(&target_), sizeof target_), "connect");
        return {.code = code, .fd = listener_, .op_flags = SOCK_CLOEXEC};
    }
    case connect:
        return {.code = code, .fd = keep(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")),
                .offset = sizeof target_, .address = address_of(&target_)};
    case send:
    case sendmsg:
    case send_zc:
    case sendmsg_zc: return socket_request(code, fed_);
    case recv:
    case recvmsg:
        check(static_cast<int>(::send(fed_, memory_.data(), size, MSG_NOSIGNAL)), "send");
        return socket_request(code, drain_);
    case poll_add: return {.code = code, .fd = keep(check(eventfd(1, EFD_CLOEXEC), "eventfd")), .op_flags = POLLIN};
    case count_: break;
    }
    no_recipe(code);
}

sluice::request world::failing(opcode code, int& errno_value) {
    using enum opcode;
    sluice::request r = working(code);
    close_leftovers();
    errno_value = EBADF;
    switch (code) {
    case nop:
        r.sqe_flags = IOSQE_BUFFER_SELECT;
        errno_value = EOPNOTSUPP;
        return r;
    case openat:
    case openat2:
    case unlinkat:
    case renameat:
        r.address = address_of("/nonexistent/name");
        errno_value = ENOENT;
        return r;
    case mkdirat:
        r.address = address_of("/");
        errno_value = EEXIST;
        return r;
    case read:
    case write:
    case readv:
    case writev:
    case read_fixed:
    case write_fixed:
    case fsync:
    case fallocate:
    case close:
    case statx:
    case accept:
    case connect:
    case send:
    case recv:
    case sendmsg:
    case recvmsg:
    case send_zc:
    case sendmsg_zc:
    case poll_add: r.fd = -1; return r;
    case count_: break;
    }
    no_recipe(code);
}

sluice::request world::blocking(opcode code) {
    using enum opcode;
    switch (code) {
    case read:
    case readv:
    case read_fixed: {
        std::array<int, 2> ends{};
        check(pipe2(ends.data(), O_CLOEXEC), "pipe2");
        keep(ends[1]);
        return on_memory(code, keep(ends[0]));
    }
    case write:
    case writev:
    case write_fixed: return on_memory(code, full_pipe());
    case accept: {
        sockaddr_in unused{};
        return {.code = code, .fd = tcp_listener(1, unused), .op_flags = SOCK_CLOEXEC};
    }
    case connect: {
        // A listener whose backlog is full answers no more SYNs.
        tcp_listener(0, target_);
        for (int i = 0; i < 4; ++i) {
            const int fd = keep(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket"));
            if (::connect(fd, reinterpret_cast<sockaddr*>(&target_), sizeof target_) != 0 && errno != EINPROGRESS)
                check(-1, "connect");
        }
        return {.code = code, .fd = keep(check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")),
                .offset = sizeof target_, .address = address_of(&target_)};
    }
    case send:
    case sendmsg:
    case send_zc:
    case sendmsg_zc: return socket_request(code, full_socket());
    case recv:
    case recvmsg: return socket_request(code, drain_);
    case poll_add: return {.code = code, .fd = keep(check(eventfd(0, EFD_CLOEXEC), "eventfd")), .op_flags = POLLIN};
    case nop:
    case fsync:
    case fallocate:
    case openat:
    case openat2:
    case close:
    case statx:
    case renameat:
    case unlinkat:
    case mkdirat:
    case count_: break;
    }
    no_recipe(code);
}

} // namespace sluice::testing
