#pragma once

#include <sluice/result.hpp>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sluice::tools {

/// Every RDMA device with its limits, ports and GIDs, as sluice-info shows them: an array; of each port also whether
/// `selection` chooses it, as runtime_options.rdma_devices does, and why not. Errors: as list_devices() and
/// device_selector::parse.
result<nlohmann::ordered_json> rdma_devices(const std::string& selection);

/// Why connections over RDMA fail here though there are devices: the memlock limit, where it is below the pool of a runtime
/// with default options, which each device locks; with need and remedy. Empty: nothing is known against them.
std::string why_connections_fail();

/// What rdma_devices() says of one device as lines for people: name and value.
std::vector<std::pair<std::string, std::string>> lines_of(const nlohmann::ordered_json& device);

} // namespace sluice::tools
