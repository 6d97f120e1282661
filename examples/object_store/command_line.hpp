#pragma once

#include "examples/object_store/client.hpp"
#include "examples/object_store/server.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace store {

enum class command { serve, put, get, list, stat, remove };

/// What the user asked for.
struct settings {
    command what = command::serve;
    bool quiet = false;
    bool json = false;
    std::string rdma_devices; ///< as runtime_options.rdma_devices

    // serve
    std::string directory;
    server_options server;
    std::size_t pool_bytes = std::size_t{64} << 20;

    // the others: as written, `names` before `target`
    std::vector<std::string> names;
    std::string target;
    client_options client;
    std::uint32_t parallel = 4;
    std::uint64_t memory_bytes = 0; ///< of all windows together
};

/// Empty when there is nothing left to do (--help, or a mistake, which has been explained); `status` is then what to
/// exit with.
std::optional<settings> parse_command_line(int argc, char** argv, int& status);

} // namespace store
