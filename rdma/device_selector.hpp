#pragma once

#include <sluice/result.hpp>

#include "rdma/gid.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::rdma {

/// A port as far as it can be chosen by.
struct described_port {
    std::string device; ///< "mlx5_0"
    std::uint8_t number = 1;
    bool active = false;
    std::vector<gid_entry> gids{};
    std::vector<std::string> netdevs{}; ///< "eth0"
    std::vector<gid> addresses{};       ///< IP addresses of its netdevs
};

/// Which ports are to be used, as a text says. A comma list of
/// | text            | is                                                        |
/// |-----------------|-----------------------------------------------------------|
/// | mlx5_0          | a device, all of its active ports; or the port of a netdev |
/// | mlx5_0:2        | one port, numbered from 1                                 |
/// | mlx5_0:2:5      | one port, with the GID of this index                      |
/// | 10.0.0.1, fe80::1%eth0, [fe80::1%eth0] | the port with this IP address       |
/// | *               | every active port                                         |
/// | !mlx5_1         | not this one: any of the above but * and one with a GID   |
///
/// A list of denials alone means all the others.
class device_selector {
public:
    /// Errors: errc::invalid_argument that quotes the part and says what is allowed.
    static result<device_selector> parse(std::string_view text);

    struct choice {
        const described_port* port;
        std::optional<std::uint32_t> gid_index;
        std::size_t rank = 0; ///< place of the part in the list: ports of one part are equally good
    };
    /// The chosen ports, in the order of the list and without repetitions; `ports` must outlive them. Errors, which
    /// quote the part: ENODEV for one that matches nothing, with what there is; ENETDOWN when nothing that matches is
    /// active; ENODEV when everything is denied; EINVAL for a link-local address that several ports have, and for a second
    /// GID of a port.
    result<std::vector<choice>> match(const std::vector<described_port>& ports) const;

    struct verdict {
        std::string why_not; ///< "denied by \"!mlx5_1\"", "not in the list"; empty: chosen
        std::optional<std::uint32_t> gid_index{};
    };
    /// What the text says of one port, whether or not it is active and whatever else there is.
    verdict judge(const described_port& port) const;

private:
    struct item {
        enum class kind : std::uint8_t { all, name, address };
        std::string text; ///< as it was written
        bool denies = false;
        kind what = kind::all;
        std::string name{};    ///< of a device or netdev; of an address: the netdev that is its scope, or empty
        std::uint8_t port = 0; ///< 0: any
        std::optional<std::uint32_t> gid_index{};
        gid address{};
    };
    static result<item> parse_item(std::string_view text);
    static bool matches(const item& wanted, const described_port& port);
    const item* denial_of(const described_port& port) const;
    std::vector<item> items_;
};

} // namespace sluice::rdma
