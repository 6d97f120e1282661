#include "tools/rdma_info.hpp"

#include "rdma/device_list.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace sluice::tools {

namespace {

using json = nlohmann::ordered_json;

json limits_of(const rdma::listed_device& device) {
    const ibv_device_attr& l = device.limits;
    return {{"queue_pairs", l.max_qp},
            {"work_requests_per_queue_pair", l.max_qp_wr},
            {"completion_queues", l.max_cq},
            {"completion_queue_entries", l.max_cqe},
            {"shared_receive_queue_entries", l.max_srq_wr},
            {"memory_regions", l.max_mr},
            {"memory_region_bytes", l.max_mr_size},
            {"reads_in_flight_as_target", l.max_qp_rd_atom},
            {"reads_in_flight_as_initiator", l.max_qp_init_rd_atom},
            {"atomics", device.quirks.atomics}};
}

json gids_of(const rdma::listed_port& port) {
    const auto ranked = rdma::rank_gids(port.gids);
    json all = json::array();
    for (const rdma::gid_entry& each : port.gids) {
        json one{{"index", each.index},
                 {"gid", rdma::to_string(each.address)},
                 {"address", rdma::to_address(each.address)},
                 {"type", rdma::to_string(each.type)}};
        one["netdev"] = each.netdev.empty() ? json(nullptr) : json(each.netdev);
        one["best"] = each.index == ranked.front().index;
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

json port_of(const rdma::listed_port& port, const std::optional<rdma::device_selector>& selector) {
    const std::string why_not = why_not_chosen(port, selector);
    json made{{"number", port.number},
              {"state", rdma::to_string(port.attributes.state)},
              {"link_layer", rdma::link_layer_name(port.attributes.link_layer)},
              {"mtu_bytes", rdma::bytes_of(port.attributes.active_mtu)},
              {"mtu_bytes_max", rdma::bytes_of(port.attributes.max_mtu)},
              {"message_bytes_max", port.attributes.max_msg_sz},
              {"netdevs", port.netdevs},
              {"gids", gids_of(port)},
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
        for (const rdma::listed_port& port : each.ports) one["ports"].push_back(port_of(port, selector));
        all.push_back(std::move(one));
    }
    return all;
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
    lines.emplace_back("memory regions",
                       text(l["memory_regions"]) + " of " + text(l["memory_region_bytes"]) + " bytes");
    for (const json& port : device["ports"]) {
        const std::string name = "port " + text(port["number"]);
        std::string about = text(port["state"]) + ", " + text(port["link_layer"]) + ", MTU " + text(port["mtu_bytes"]) +
                            " of " + text(port["mtu_bytes_max"]) + ", messages of " + text(port["message_bytes_max"]) +
                            " bytes";
        for (const json& netdev : port["netdevs"]) about += ", " + text(netdev);
        about += port["chosen"].get<bool>() ? "; chosen" : "; not chosen: " + text(port["why_not_chosen"]);
        lines.emplace_back(name, about);
        for (const json& gid : port["gids"])
            lines.emplace_back(name + " gid " + text(gid["index"]),
                               text(gid["address"]) + "  (" + text(gid["type"]) + ", " +
                                   (gid["netdev"].is_null() ? "no netdev" : text(gid["netdev"])) +
                                   (gid["best"].get<bool>() ? ", best)" : ")"));
    }
    return lines;
}

} // namespace sluice::tools
