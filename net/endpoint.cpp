#include "net/endpoint.hpp"

#include "net/text.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace sluice::net {

namespace {

template <class T>
T& as(endpoint& e) noexcept {
    e.length = sizeof(T);
    return reinterpret_cast<T&>(e.storage);
}
template <class T>
const T& as(const endpoint& e) noexcept {
    return reinterpret_cast<const T&>(e.storage);
}

endpoint unix_endpoint(std::string_view path) {
    endpoint made;
    auto& name = as<sockaddr_un>(made);
    SLUICE_EXPECTS(path.size() < sizeof name.sun_path, "endpoint: a unix socket's name that address::parse refuses");
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.data(), path.size());
    std::size_t bytes = offsetof(sockaddr_un, sun_path) + path.size();
    if (path.front() == '@') name.sun_path[0] = '\0'; // abstract: the length ends it [unix(7)]
    else ++bytes;                                     // a path: counts its NUL
    made.length = static_cast<socklen_t>(bytes);
    return made;
}

result<std::uint32_t> scope_index(const address& where) {
    const char* end = where.scope.data() + where.scope.size();
    std::uint32_t index = 0;
    const auto number = std::from_chars(where.scope.data(), end, index);
    if (number.ec == std::errc{} && number.ptr == end && index != 0) return index;
    index = if_nametoindex(where.scope.c_str());
    if (index != 0) return index;
    return error(errc::invalid_address, "address " + net::quoted(where.to_string()) + ": no interface " +
                                            net::quoted(where.scope) + " on this machine; `ip link` lists them");
}

std::string name_of_unix(const endpoint& e) {
    const auto& name = as<sockaddr_un>(e);
    const std::size_t bytes = e.length - offsetof(sockaddr_un, sun_path);
    if (bytes == 0 || name.sun_path[0] == '\0')
        return "@" + std::string(name.sun_path + 1, bytes == 0 ? 0 : bytes - 1);
    return std::string(name.sun_path, strnlen(name.sun_path, bytes));
}

} // namespace

std::uint16_t endpoint::port() const noexcept {
    if (family() == AF_INET) return ntohs(as<sockaddr_in>(*this).sin_port);
    if (family() == AF_INET6) return ntohs(as<sockaddr_in6>(*this).sin6_port);
    return 0;
}

address endpoint::to_address(scheme s) const {
    address made;
    made.scheme = s;
    made.port = port();
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (family() == AF_INET) {
        made.host = inet_ntop(AF_INET, &as<sockaddr_in>(*this).sin_addr, text.data(), text.size());
    } else if (family() == AF_INET6) {
        const auto& in6 = as<sockaddr_in6>(*this);
        made.host = inet_ntop(AF_INET6, &in6.sin6_addr, text.data(), text.size());
        std::array<char, IF_NAMESIZE> name{};
        if (in6.sin6_scope_id != 0)
            made.scope = if_indextoname(in6.sin6_scope_id, name.data()) != nullptr ? std::string(name.data())
                                                                                   : std::to_string(in6.sin6_scope_id);
    } else {
        SLUICE_EXPECTS(family() == AF_UNIX, "endpoint: a family other than IPv4, IPv6 and unix");
        made.unix_path = name_of_unix(*this);
    }
    return made;
}

result<std::optional<endpoint>> numeric_endpoint(const address& where) {
    if (where.is_unix()) return std::optional(unix_endpoint(where.unix_path));
    endpoint made;
    in_addr four{};
    in6_addr six{};
    if (inet_pton(AF_INET, where.host.c_str(), &four) == 1) {
        auto& name = as<sockaddr_in>(made);
        name.sin_family = AF_INET;
        name.sin_addr = four;
        name.sin_port = htons(where.port);
        return std::optional(made);
    }
    if (inet_pton(AF_INET6, where.host.c_str(), &six) != 1) return std::optional<endpoint>{};
    auto& name = as<sockaddr_in6>(made);
    name.sin6_family = AF_INET6;
    name.sin6_addr = six;
    name.sin6_port = htons(where.port);
    if (!where.scope.empty()) {
        auto index = scope_index(where);
        if (!index) return std::move(index).error();
        name.sin6_scope_id = *index;
    }
    return std::optional(made);
}

std::string to_string(const endpoint& e) { return e.to_address(scheme::tcp).to_string(); }

result<endpoint> local_endpoint(int fd) {
    endpoint e;
    e.length = sizeof e.storage;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&e.storage), &e.length) != 0)
        return error::from_errno(errno, "getsockname");
    return e;
}

result<endpoint> peer_endpoint(int fd) {
    endpoint e;
    e.length = sizeof e.storage;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&e.storage), &e.length) != 0)
        return error::from_errno(errno, "getpeername");
    return e;
}

} // namespace sluice::net
