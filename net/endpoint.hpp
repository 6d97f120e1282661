#pragma once

#include <sluice/address.hpp>
#include <sluice/result.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <sys/socket.h>

namespace sluice::net {

/// An address in the kernel's form.
struct endpoint {
    sockaddr_storage storage{};
    socklen_t length = 0;

    const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
    int family() const noexcept { return storage.ss_family; }
    /// 0 for unix sockets.
    std::uint16_t port() const noexcept;
    /// The address with numbers instead of names. An unnamed unix socket (the connecting end's) gives `@` alone, which
    /// no address that was parsed can be.
    address to_address(scheme s) const;
};

/// The endpoint of an address that needs no name service, or none if it has a name to be looked up. Errors:
/// errc::invalid_address for a scope that names no interface.
result<std::optional<endpoint>> numeric_endpoint(const address& where);

/// "tcp://10.0.0.2:7471", for error messages.
std::string to_string(const endpoint& e);

/// Of a socket. Errors: as getsockname(2) and getpeername(2).
result<endpoint> local_endpoint(int fd);
result<endpoint> peer_endpoint(int fd);

} // namespace sluice::net
