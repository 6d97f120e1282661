#pragma once

#include <sluice/result.hpp>

#include "rdma/device_list.hpp"
#include "rdma/gid.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::rdma {

/// An address that connections can leave from.
struct source_address {
    gid address;
    std::string netdev; ///< "eth0": the scope of a link-local one
    friend bool operator==(const source_address&, const source_address&) = default;
};

/// A port that a user has chosen [device_selector.hpp].
struct chosen_port {
    std::string device;
    std::uint8_t number = 1;
    std::size_t rank = 0;                  ///< what comes earlier in the user's list is preferred
    bool pinned = false;                   ///< to the one source, the address of the GID that was named
    std::vector<source_address> sources{}; ///< the best first

    /// "mlx5_0:1"
    std::string name() const;
    /// Whether an id that has a device uses this port, and where it is pinned this address.
    bool is_of(const rdma_cm_id& id) const noexcept;
};

/// Addresses of a port: on RoCE its GIDs, ranked [rank_gids], elsewhere what its netdevs have. Those of one GID, if it
/// is named, which is none where GIDs are no IP addresses.
std::vector<source_address> sources_of(const listed_device& device, const listed_port& port,
                                       std::optional<std::uint32_t> gid_index);

///@{
/// The ports that `selection` chooses, for a helper thread; the text is not empty. For connecting only active ones,
/// the preferred first. For listening whatever their state, and no part of the text needs to match. Errors: those of
/// device_selector::parse and match, and of list_devices().
result<std::vector<chosen_port>> ports_to_connect_by(const std::string& selection);
result<std::vector<chosen_port>> ports_to_listen_on(const std::string& selection);
///@}

/// The one that the id uses, which has a device; null when it was not chosen.
const chosen_port* find_port(const std::vector<chosen_port>& chosen, const rdma_cm_id& id) noexcept;
/// "rxe0:1", or "rxe0:1 from 10.0.0.1"
std::string port_name(const rdma_cm_id& id);
std::string port_and_address(const rdma_cm_id& id);

} // namespace sluice::rdma
