#include "rdma/gid.hpp"

#include "net/text.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <net/if.h>
#include <tuple>

namespace sluice::rdma {

namespace {

constexpr std::array<std::uint8_t, 12> ipv4_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

} // namespace

bool gid::is_zero() const noexcept { return bytes == gid{}.bytes; }
bool gid::is_ipv4() const noexcept { return std::equal(ipv4_prefix.begin(), ipv4_prefix.end(), bytes.begin()); }
bool gid::is_link_local() const noexcept {
    if (is_ipv4()) return bytes[12] == 169 && bytes[13] == 254; // [RFC 3927]
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;       // [RFC 4291, 2.4]
}

std::string to_string(const gid& g) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < g.bytes.size(); ++i) {
        if (i != 0 && i % 2 == 0) text += ':';
        text += digits[g.bytes[i] >> 4];
        text += digits[g.bytes[i] & 15];
    }
    return text;
}

std::string to_address(const gid& g) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const bool v4 = g.is_ipv4();
    inet_ntop(v4 ? AF_INET : AF_INET6, g.bytes.data() + (v4 ? ipv4_prefix.size() : 0), text.data(), text.size());
    return text.data();
}

result<gid> parse_gid(std::string_view text) {
    const std::string terminated(text);
    const bool whole = terminated.find('\0') == std::string::npos; // the parser would stop there
    gid g;
    if (whole && inet_pton(AF_INET6, terminated.c_str(), g.bytes.data()) == 1) return g;
    std::ranges::copy(ipv4_prefix, g.bytes.begin());
    if (whole && inet_pton(AF_INET, terminated.c_str(), g.bytes.data() + ipv4_prefix.size()) == 1) return g;
    return error(make_error_code(errc::invalid_argument),
                 "GID " + net::quoted(text) + ", allowed is an IPv6 or IPv4 address");
}

const char* to_string(ibv_gid_type type) noexcept {
    switch (type) {
    case IBV_GID_TYPE_IB: return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1: return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2: return "RoCE v2";
    }
    return "unknown";
}

std::vector<gid_entry> rank_gids(std::vector<gid_entry> all) {
    std::erase_if(all, [](const gid_entry& each) { return each.address.is_zero(); });
    std::ranges::sort(all, {}, [](const gid_entry& each) {
        return std::tuple(each.netdev.empty() && each.type != IBV_GID_TYPE_IB, each.type == IBV_GID_TYPE_ROCE_V1,
                          each.address.is_link_local(), each.index);
    });
    return all;
}

std::vector<gid_entry> read_gids(ibv_context* context, std::uint8_t port, int length) {
    std::vector<gid_entry> all;
    for (int index = 0; index < length; ++index) {
        ibv_gid_entry found{};
        if (api().query_gid(context, port, index, &found) != 0) continue;
        gid_entry& made = all.emplace_back();
        static_assert(sizeof found.gid.raw == sizeof made.address.bytes);
        std::memcpy(made.address.bytes.data(), found.gid.raw, sizeof found.gid.raw);
        made.index = static_cast<std::uint32_t>(index);
        made.type = static_cast<ibv_gid_type>(found.gid_type);
        std::array<char, IF_NAMESIZE> name{};
        if (found.ndev_ifindex != 0 && if_indextoname(found.ndev_ifindex, name.data()) != nullptr)
            made.netdev = name.data();
        if (made.address.is_zero()) all.pop_back();
    }
    return all;
}

} // namespace sluice::rdma
