#include "examples/object_store/client_memory.hpp"

#include "examples/object_store/window.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

namespace store {

namespace {

std::uint64_t largest_file(const std::vector<transfer_job>& jobs) {
    std::uint64_t largest = 0;
    for (const transfer_job& job : jobs) {
        std::error_code failed; // which the put will report
        const std::uint64_t size = std::filesystem::file_size(job.file, failed);
        if (!failed) largest = std::max(largest, size);
    }
    return largest;
}

} // namespace

client_memory memory_for(const settings& s, const std::vector<transfer_job>& jobs) {
    constexpr std::size_t others = std::size_t{4} << 20; // inboxes, and what the library keeps back for receives
    const std::size_t workers = std::clamp<std::size_t>(jobs.size(), 1, s.parallel);
    std::uint64_t size_bytes = std::numeric_limits<std::uint64_t>::max() / 2; // any
    if (s.what == command::put) size_bytes = largest_file(jobs);
    const layout wanted = layout::fit(size_bytes, s.client.chunk_bytes, s.client.slots);

    const std::uint64_t most = s.memory_bytes / workers;
    const std::uint32_t at_once = std::min(wanted.slots, 2U); // so that disk and network still work at the same time
    const std::uint64_t chunk = std::max<std::uint64_t>(most / at_once / chunk_unit_bytes, 1) * chunk_unit_bytes;
    client_memory m;
    m.chunk_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk, wanted.chunk_bytes));
    m.slots = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most / m.chunk_bytes, 1, wanted.slots));
    m.pool_bytes = others + workers * m.chunk_bytes * m.slots * 5 / 4;
    return m;
}

} // namespace store
