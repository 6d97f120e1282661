#pragma once

#include "examples/object_store/demo/server_process.hpp"
#include "examples/object_store/demo/workload.hpp"

#include "examples/object_store/client.hpp"

#include <sluice/result.hpp>
#include <sluice/runtime.hpp>
#include <sluice/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace demo {

enum class way { put, get };

/// What one phase took.
struct measured {
    std::string name;
    std::uint64_t objects = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;
    double p50_ms = 0; ///< of one object, from the request to its end
    double p99_ms = 0;
    double client_cpu_seconds = 0;
    double server_cpu_seconds = 0;
    std::uint64_t tcp_bytes = 0;  ///< payload and messages, as the clients count them
    std::uint64_t rdma_bytes = 0; ///< payload, as the server counts it: over RDMA a client isn't told
    std::uint64_t file_direct_bytes = 0; ///< of both ends
    std::uint64_t file_buffered_bytes = 0;
};

/// Moves all items, `clients` at a time over connections of their own. The first failure ends it.
sluice::task<sluice::result<measured>> run_phase(sluice::runtime& runtime, std::string name, way direction,
                                                 std::span<const item> items, const server_process& server,
                                                 std::size_t clients, const store::client_options& options);

} // namespace demo
