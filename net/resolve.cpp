#include "net/resolve.hpp"

#include <sluice/blocking.hpp>

#include "net/text.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <string>

namespace sluice::net {

namespace {

struct free_addresses {
    void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};

/// The errno that stands for a getaddrinfo error in `condition`'s terms.
int errno_of(int gai_error, int system_errno) noexcept {
    switch (gai_error) {
    case EAI_SYSTEM: return system_errno != 0 ? system_errno : EIO;
    case EAI_MEMORY: return ENOMEM;
    case EAI_AGAIN: return EAGAIN;
    case EAI_FAMILY: return EAFNOSUPPORT;
    default: return ENOENT;
    }
}

result<std::vector<endpoint>> look_up(const address& where) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    errno = 0;
    const int rc = getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
    if (rc != 0) {
        const int value = errno_of(rc, errno);
        return error::from_errno(value, "name " + net::quoted(where.host) + ": " + gai_strerror(rc));
    }
    const std::unique_ptr<addrinfo, free_addresses> list(found);
    std::vector<endpoint> made;
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
        endpoint& e = made.emplace_back();
        SLUICE_EXPECTS(at->ai_addrlen <= sizeof e.storage, "resolve: an IP address larger than any");
        std::memcpy(&e.storage, at->ai_addr, at->ai_addrlen);
        e.length = at->ai_addrlen;
    }
    if (made.empty()) return error::from_errno(ENOENT, "name " + net::quoted(where.host) + ": has no IPv4 or IPv6 address");
    return made;
}

} // namespace

task<result<std::vector<endpoint>>> resolve(address where) {
    auto numeric = numeric_endpoint(where);
    if (!numeric) co_return std::move(numeric).error();
    if (*numeric) co_return std::vector<endpoint>{**numeric};
    co_return co_await run_blocking([&where] { return look_up(where); });
}

} // namespace sluice::net
