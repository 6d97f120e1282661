#include "rdma/device_list.hpp"
#include "rdma/fork.hpp"
#include "rdma/held_devices.hpp"
#include "rdma/limits.hpp"

#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>

namespace sluice::rdma {

namespace {

/// The IP addresses of one netdev.
std::vector<gid> addresses_of(const ifaddrs* all, const std::string& netdev) {
    std::vector<gid> found;
    for (; all != nullptr; all = all->ifa_next) {
        if (all->ifa_addr == nullptr || netdev != all->ifa_name) continue;
        gid made;
        if (all->ifa_addr->sa_family == AF_INET6) {
            sockaddr_in6 address{};
            std::memcpy(&address, all->ifa_addr, sizeof address);
            std::memcpy(made.bytes.data(), &address.sin6_addr, made.bytes.size());
        } else if (all->ifa_addr->sa_family == AF_INET) {
            sockaddr_in address{};
            std::memcpy(&address, all->ifa_addr, sizeof address);
            made.bytes[10] = made.bytes[11] = 0xff;
            std::memcpy(made.bytes.data() + 12, &address.sin_addr, 4);
        } else continue;
        found.push_back(made);
    }
    return found;
}

result<listed_device> describe(ibv_context* context, const ifaddrs* addresses) {
    listed_device made{.name = context->device->name};
    if (const int failed = api().query_device(context, &made.limits); failed != 0)
        return verbs_error(failed, "ibv_query_device on " + made.name);
    made.quirks = quirks_of(*context->device, made.limits);
    for (unsigned number = 1; number <= made.limits.phys_port_cnt; ++number) {
        listed_port port;
        port.device = made.name;
        port.number = static_cast<std::uint8_t>(number);
        if (const int failed = api().query_port(context, port.number, &port.attributes); failed != 0)
            return verbs_error(failed, "ibv_query_port of port " + std::to_string(number) + " on " + made.name);
        port.active = port.attributes.state == IBV_PORT_ACTIVE;
        port.gids = read_gids(context, port.number, port.attributes.gid_tbl_len);
        for (const gid_entry& each : port.gids) {
            if (each.netdev.empty() || std::ranges::count(port.netdevs, each.netdev) != 0) continue;
            port.netdevs.push_back(each.netdev);
            for (const gid& address : addresses_of(addresses, each.netdev)) port.addresses.push_back(address);
        }
        made.ports.push_back(std::move(port));
    }
    return made;
}

} // namespace

result<std::vector<listed_device>> list_devices() {
    if (auto ours = claim_rdma(); !ours) return std::move(ours).error();
    const auto known = held_devices::take();
    if (!known) return known.error();
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) first = nullptr;
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> addresses(first, [](ifaddrs* all) { freeifaddrs(all); });
    std::vector<listed_device> all;
    for (ibv_context* context : known->all()) {
        auto one = describe(context, addresses.get());
        if (one) all.push_back(std::move(*one));
        else SLUICE_LOG(warning, "rdma: left out: ", one.error().message());
    }
    return all;
}

const char* link_layer_name(std::uint8_t link_layer) noexcept {
    switch (link_layer) {
    case IBV_LINK_LAYER_INFINIBAND: return "InfiniBand";
    case IBV_LINK_LAYER_ETHERNET: return "Ethernet";
    default: return "unspecified";
    }
}

const char* to_string(ibv_port_state state) noexcept {
    switch (state) {
    case IBV_PORT_NOP: return "none";
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "init";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "active, deferred";
    }
    return "unknown";
}

std::uint32_t bytes_of(ibv_mtu mtu) noexcept {
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << static_cast<unsigned>(mtu) : 0;
}

} // namespace sluice::rdma
