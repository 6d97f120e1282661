#pragma once

#include "examples/object_store/command_line.hpp"
#include "examples/object_store/commands.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace store {

/// What the workers of a put or get need of memory, which is registered before anything moves.
struct client_memory {
    std::uint32_t chunk_bytes = 0; ///< of each worker's window
    std::uint32_t slots = 0;       ///< likewise
    std::size_t pool_bytes = 0;    ///< of all of them
};

/// Windows as large as the settings allow and the largest file needs (a get doesn't know, and takes what is allowed),
/// smaller if all together would be more than `--memory`.
client_memory memory_for(const settings& s, const std::vector<transfer_job>& jobs);

} // namespace store
