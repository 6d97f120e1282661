#include "rdma/chosen_ports.hpp"

#include <sluice/contract.hpp>

#include <algorithm>
#include <cstring>
#include <netinet/in.h>
#include <optional>
#include <string>

namespace sluice::rdma {

namespace {

constexpr std::size_t ipv4_at = 12; // in a mapped address

std::optional<gid> gid_of(const sockaddr_storage& from) noexcept {
    gid made;
    if (from.ss_family == AF_INET6) {
        std::memcpy(made.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, made.bytes.size());
    } else if (from.ss_family == AF_INET) {
        made.bytes[10] = made.bytes[11] = 0xff;
        std::memcpy(made.bytes.data() + ipv4_at, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, sizeof(in_addr));
    } else {
        return std::nullopt;
    }
    return made;
}

chosen_port describe(const listed_device& device, const listed_port& port, std::optional<std::uint32_t> gid_index,
                     std::size_t rank) {
    return {.device = device.name,
            .number = port.number,
            .rank = rank,
            .pinned = gid_index.has_value(),
            .sources = sources_of(device, port, gid_index)};
}

} // namespace

std::string chosen_port::name() const { return device + ":" + std::to_string(number); }

bool chosen_port::is_of(const rdma_cm_id& id) const noexcept {
    SLUICE_EXPECTS(id.verbs != nullptr, "rdma: an id without a device was asked for its port");
    if (device != id.verbs->device->name || number != id.port_num) return false;
    return !pinned || (!sources.empty() && gid_of(id.route.addr.src_storage) == sources.front().address);
}

std::vector<source_address> sources_of(const listed_device& device, const listed_port& port,
                                       std::optional<std::uint32_t> gid_index) {
    std::vector<source_address> all;
    const auto add = [&](const source_address& each) {
        if (std::ranges::count(all, each) == 0) all.push_back(each); // RoCE v1 and v2 have the same
    };
    const bool roce = port.attributes.link_layer == IBV_LINK_LAYER_ETHERNET && !device.quirks.iwarp;
    if (roce) {
        for (const gid_entry& each : rank_gids(port.gids))
            if (!each.netdev.empty() && (!gid_index || each.index == *gid_index)) add({each.address, each.netdev});
    } else if (!gid_index) {
        // Which netdev has an address is known where there is one only; nothing but a link-local one needs it.
        const std::string netdev = port.netdevs.size() == 1 ? port.netdevs.front() : std::string();
        for (const gid& each : port.addresses)
            if (!netdev.empty() || !each.is_link_local()) add({each, netdev});
    }
    return all;
}

result<std::vector<chosen_port>> ports_to_connect_by(const std::string& selection) {
    auto selector = device_selector::parse(selection);
    if (!selector) return selector.error();
    auto devices = list_devices();
    if (!devices) return devices.error();
    std::vector<described_port> ports;
    std::vector<std::pair<const listed_device*, const listed_port*>> whole;
    for (const listed_device& device : *devices)
        for (const listed_port& port : device.ports) {
            ports.push_back(port);
            whole.emplace_back(&device, &port);
        }
    auto matched = selector->match(ports);
    if (!matched) return matched.error();
    std::vector<chosen_port> chosen;
    for (const device_selector::choice& each : *matched) {
        const auto& [device, port] = whole[static_cast<std::size_t>(each.port - ports.data())];
        chosen.push_back(describe(*device, *port, each.gid_index, each.rank));
    }
    return chosen;
}

result<std::vector<chosen_port>> ports_to_listen_on(const std::string& selection) {
    auto selector = device_selector::parse(selection);
    if (!selector) return selector.error();
    auto devices = list_devices();
    if (!devices) return devices.error();
    std::vector<chosen_port> chosen;
    for (const listed_device& device : *devices)
        for (const listed_port& port : device.ports)
            if (const auto verdict = selector->judge(port); verdict.why_not.empty())
                chosen.push_back(describe(device, port, verdict.gid_index, 0));
    return chosen;
}

const chosen_port* find_port(const std::vector<chosen_port>& chosen, const rdma_cm_id& id) noexcept {
    const auto found = std::ranges::find_if(chosen, [&](const chosen_port& each) { return each.is_of(id); });
    return found == chosen.end() ? nullptr : &*found;
}

std::string port_name(const rdma_cm_id& id) {
    SLUICE_EXPECTS(id.verbs != nullptr, "rdma: an id without a device was asked for its port");
    return std::string(id.verbs->device->name) + ":" + std::to_string(id.port_num);
}

std::string port_and_address(const rdma_cm_id& id) {
    const auto address = gid_of(id.route.addr.src_storage);
    return port_name(id) + (address ? " from " + to_address(*address) : std::string());
}

} // namespace sluice::rdma
