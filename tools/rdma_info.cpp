#include "tools/rdma_info.hpp"

#include "rdma/device_list.hpp"
#include "rdma/limits.hpp"

#include <sluice/runtime.hpp>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace sluice::tools {

namespace {

using json = nlohmann::ordered_json;

constexpr std::uint64_t unlimited = ~std::uint64_t{0}; // max_mr_size of devices without a limit, such as rxe's

json limits_of(const rdma::listed_device& device) {
    const ibv_device_attr& l = device.limits;
    return {{"queue_pairs", l.max_qp},
            {"work_requests_per_queue_pair", l.max_qp_wr},
            {"completion_queues", l.max_cq},
            {"completion_queue_entries", l.max_cqe},
            {"shared_receive_queue_entries", l.max_srq_wr},
            {"memory_regions", l.max_mr},
            {"memory_region_bytes", l.max_mr_size == unlimited ? json("unlimited") : json(l.max_mr_size)},
            {"reads_in_flight_as_target", l.max_qp_rd_atom},
            {"reads_in_flight_as_initiator", l.max_qp_init_rd_atom},
            {"atomics", device.quirks.atomics}};
}

/// Of iWARP a GID holds the MAC address and is neither an address nor of a type, so that none is the best
/// [Linux, siw_verbs.c: siw_query_gid].
json gids_of(const rdma::listed_port& port, bool iwarp) {
    const auto ranked = rdma::rank_gids(port.gids);
    json all = json::array();
    for (const rdma::gid_entry& each : port.gids) {
        json one{{"index", each.index},
                 {"gid", rdma::to_string(each.address)},
                 {"address", iwarp ? json(nullptr) : json(rdma::to_address(each.address))},
                 {"type", iwarp ? "iWARP" : rdma::to_string(each.type)}};
        one["netdev"] = each.netdev.empty() ? json(nullptr) : json(each.netdev);
        one["best"] = !iwarp && each.index == ranked.front().index;
        all.push_back(std::move(one));
    }
    return all;
}

/// Why connections don't leave by this port; empty: they may.
std::string why_not_chosen(const rdma::listed_port& port, const std::optional<rdma::device_selector>& selector) {
    std::string why_not = selector ? selector->judge(port).why_not : std::string();
    if (why_not.empty() && !port.active) why_not = "the port is not active";
    return why_not;
}

/// Verbs number the MTU of a packet of InfiniBand or RoCE; iWARP has none but TCP's, whatever its driver says.
json mtu_of(ibv_mtu mtu, bool iwarp) { return iwarp ? json(nullptr) : json(rdma::bytes_of(mtu)); }

json addresses_of(const rdma::listed_port& port) {
    json all = json::array();
    for (const rdma::gid& each : port.addresses) all.push_back(rdma::to_address(each));
    return all;
}

json port_of(const rdma::listed_port& port, bool iwarp, const std::optional<rdma::device_selector>& selector) {
    const std::string why_not = why_not_chosen(port, selector);
    json made{{"number", port.number},
              {"state", rdma::to_string(port.attributes.state)},
              {"link_layer", rdma::link_layer_name(port.attributes.link_layer)},
              {"mtu_bytes", mtu_of(port.attributes.active_mtu, iwarp)},
              {"mtu_bytes_max", mtu_of(port.attributes.max_mtu, iwarp)},
              {"message_bytes_max", port.attributes.max_msg_sz},
              {"netdevs", port.netdevs},
              {"addresses", addresses_of(port)},
              {"gids", gids_of(port, iwarp)},
              {"chosen", why_not.empty()}};
    if (!why_not.empty()) made["why_not_chosen"] = why_not;
    return made;
}

std::string text(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

} // namespace

result<json> rdma_devices(const std::string& selection) {
    std::optional<rdma::device_selector> selector;
    if (!selection.empty()) {
        auto parsed = rdma::device_selector::parse(selection);
        if (!parsed) return parsed.error();
        selector = std::move(*parsed);
    }
    auto found = rdma::list_devices();
    if (!found) return found.error();
    json all = json::array();
    for (const rdma::listed_device& each : *found) {
        json one{{"name", each.name}, {"type", each.quirks.kind}, {"limits", limits_of(each)}};
        one["ports"] = json::array();
        for (const rdma::listed_port& port : each.ports)
            one["ports"].push_back(port_of(port, each.quirks.iwarp, selector));
        all.push_back(std::move(one));
    }
    return all;
}

std::string why_connections_fail() {
    const std::string shortage = rdma::memlock_shortage(runtime_options{}.pool_bytes);
    if (shortage.empty()) return {};
    return "but connections fail: each device that they use locks the runtime's pool and some more; for the default one "
           "alone " +
           shortage + ", or make runtime_options.pool_bytes smaller";
}

std::vector<std::pair<std::string, std::string>> lines_of(const json& device) {
    std::vector<std::pair<std::string, std::string>> lines;
    lines.emplace_back("type", text(device["type"]));
    const json& l = device["limits"];
    lines.emplace_back("queue pairs", text(l["queue_pairs"]) + " of " + text(l["work_requests_per_queue_pair"]) +
                                          " work requests; reads in flight " + text(l["reads_in_flight_as_initiator"]) +
                                          " out, " + text(l["reads_in_flight_as_target"]) + " in" +
                                          (l["atomics"].get<bool>() ? "; atomics" : "; no atomics"));
    lines.emplace_back("completion queues",
                       text(l["completion_queues"]) + " of " + text(l["completion_queue_entries"]) +
                           " entries; shared receive queues of " + text(l["shared_receive_queue_entries"]));
    const json& largest = l["memory_region_bytes"];
    const std::string size = largest.is_string() ? "any size" : text(largest) + " bytes";
    lines.emplace_back("memory regions", text(l["memory_regions"]) + " of " + size);
    for (const json& port : device["ports"]) {
        const std::string name = "port " + text(port["number"]);
        const bool has_mtu = !port["mtu_bytes"].is_null();
        std::string about = text(port["state"]) + ", " + text(port["link_layer"]) +
                            (has_mtu ? ", MTU " + text(port["mtu_bytes"]) + " of " + text(port["mtu_bytes_max"])
                                     : ", MTU that of TCP") +
                            ", messages of " + text(port["message_bytes_max"]) + " bytes";
        for (const json& netdev : port["netdevs"]) about += ", " + text(netdev);
        about += port["chosen"].get<bool>() ? "; chosen" : "; not chosen: " + text(port["why_not_chosen"]);
        lines.emplace_back(name, about);
        for (const json& gid : port["gids"]) {
            if (gid["address"].is_null()) continue; // addresses follow
            lines.emplace_back(name + " gid " + text(gid["index"]),
                               text(gid["address"]) + "  (" + text(gid["type"]) + ", " +
                                   (gid["netdev"].is_null() ? "no netdev" : text(gid["netdev"])) +
                                   (gid["best"].get<bool>() ? ", best)" : ")"));
        }
        if (!has_mtu)
            for (const json& address : port["addresses"]) lines.emplace_back(name + " address", text(address));
    }
    return lines;
}

} // namespace sluice::tools
