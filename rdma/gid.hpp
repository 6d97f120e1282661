#pragma once

#include <sluice/result.hpp>

#include "rdma/verbs.hpp"

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::rdma {

/// The address of a port, 16 bytes as an IPv6 address has them; an IPv4 address is mapped (::ffff:10.0.0.1).
struct gid {
    std::array<std::uint8_t, 16> bytes{};

    bool is_zero() const noexcept;
    bool is_ipv4() const noexcept;
    /// Of no use beyond one link: fe80::/10 and 169.254/16.
    bool is_link_local() const noexcept;
    friend auto operator<=>(const gid&, const gid&) noexcept = default;
};

/// "0000:0000:0000:0000:0000:ffff:0a00:0001", 39 characters, as sysfs has it.
std::string to_string(const gid& g);
/// "10.0.0.1" or "fe80::1": the IP address that it is on RoCE.
std::string to_address(const gid& g);
/// Either of the two, or any other text of an IPv6 or IPv4 address. Errors: errc::invalid_argument with the text.
result<gid> parse_gid(std::string_view text);

/// One place of a port's table that is in use.
struct gid_entry {
    gid address;
    std::uint32_t index = 0;
    ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
    std::string netdev{}; ///< "eth0"; empty: none, so that RoCE does not work with it
};
/// "RoCE v2"
const char* to_string(ibv_gid_type type) noexcept;

/// Best first: with a netdev (InfiniBand needs none), RoCE v2 before v1, beyond one link before link-local, a low index
/// before a high one. Zeros are left out.
std::vector<gid_entry> rank_gids(std::vector<gid_entry> all);

/// The places of a port that are in use, by index; `length` is gid_tbl_len of ibv_query_port(3). Those that can't be
/// read are left out, as empty ones are.
std::vector<gid_entry> read_gids(ibv_context* context, std::uint8_t port, int length);

} // namespace sluice::rdma
