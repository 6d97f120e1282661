#pragma once

#include <sluice/export.hpp>
#include <sluice/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

/// Which provider an address asks for.
enum class scheme : std::uint8_t {
    automatic, ///< `auto://`: RDMA where both ends have it, else TCP
    tcp,       ///< `tcp://`
    rdma,      ///< `rdma://`
};

/// Where to connect to or listen on, as written; names are resolved later, off the executor.
///
/// | form                         | example                       |
/// |------------------------------|-------------------------------|
/// | IPv4                         | `tcp://10.0.0.2:7471`         |
/// | IPv6, with scope             | `auto://[fe80::1%eth0]:7471`  |
/// | name                         | `auto://storage-1:7471`       |
/// | unix socket, absolute        | `tcp:///run/sluice.sock`      |
/// | unix socket, abstract        | `tcp://@sluice`               |
/// Port 0 is for listening only: the kernel picks one, `listener::address()` tells it.
struct SLUICE_EXPORT address {
    sluice::scheme scheme = sluice::scheme::automatic; ///< the provider asked for
    std::string host;       ///< name, IPv4 or IPv6 without brackets and scope; empty for unix sockets
    std::string scope;      ///< interface name or index after `%`, for link-local IPv6
    std::string unix_path;  ///< absolute path, or `@name` in the abstract namespace
    std::uint16_t port = 0; ///< in host byte order; 0: the kernel picks one, for listening only; unused by unix sockets

    /// Errors: errc::invalid_address that quotes the text and says what is wrong with which part.
    static result<address> parse(std::string_view text);
    /// The text form; parse(to_string()) gives the same address.
    std::string to_string() const;
    /// Absolute path and abstract name alike [unix(7)].
    bool is_unix() const noexcept { return !unix_path.empty(); }

    friend bool operator==(const address&, const address&) = default;
};

} // namespace sluice
