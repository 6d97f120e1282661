#include "rdma/host_address.hpp"

#include <cerrno>

#include <netinet/in.h>
#include <unistd.h>

namespace sluice::rdma {

bool is_of_this_host(const sockaddr_storage& address) noexcept {
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return true;
    const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return true;
    // Of any port. Both have it in the same place [ip(7), ipv6(7)].
    sockaddr_storage any_port = address;
    reinterpret_cast<sockaddr_in&>(any_port).sin_port = 0;
    const socklen_t length = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const bool gone = ::bind(fd, reinterpret_cast<const sockaddr*>(&any_port), length) != 0 && errno == EADDRNOTAVAIL;
    ::close(fd);
    return !gone;
}

} // namespace sluice::rdma
