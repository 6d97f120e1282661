#pragma once

#include <sluice/result.hpp>

#include "rdma/device_selector.hpp"
#include "rdma/quirks.hpp"
#include "rdma/verbs.hpp"

#include <string>
#include <vector>

namespace sluice::rdma {

/// A port with all that is known of it.
struct listed_port : described_port {
    ibv_port_attr attributes{};
};

struct listed_device {
    std::string name;
    rdma::quirks quirks{};
    ibv_device_attr limits{};
    std::vector<listed_port> ports{};
};

/// Every device that the connection manager can use, with its ports. Devices that can't be asked are left out, with a
/// warning in the log. For a helper thread. Errors: what rdma_get_devices(3) reports;
/// errc::unsupported in a child of fork() whose parent used RDMA.
result<std::vector<listed_device>> list_devices();

/// "Ethernet", "InfiniBand"
const char* link_layer_name(std::uint8_t link_layer) noexcept;
/// "active", "down", ... [ibv_query_port(3)]
const char* to_string(ibv_port_state state) noexcept;
/// 256..4096, 0 for what is unknown.
std::uint32_t bytes_of(ibv_mtu mtu) noexcept;

} // namespace sluice::rdma
