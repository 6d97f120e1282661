#include "examples/object_store/descriptors.hpp"

#include <algorithm>
#include <limits>

#include <sys/resource.h>

namespace store {

namespace {

constexpr std::uint64_t own = 32;       ///< rings, signals, standard streams, and who is told that the server is full
constexpr std::uint64_t per_client = 4; ///< its socket, its object's file twice, a directory that is synced

} // namespace

std::uint64_t raise_descriptor_limit() noexcept {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<std::uint64_t>::max();
    const rlimit all{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &all) == 0) limit = all;
    return limit.rlim_cur;
}

std::uint64_t descriptors_for(std::uint32_t clients) noexcept { return own + per_client * clients; }

std::uint32_t clients_within(std::uint64_t descriptors) noexcept {
    constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    const std::uint64_t clients = descriptors > own ? (descriptors - own) / per_client : 0;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(clients, 1, most));
}

} // namespace store
