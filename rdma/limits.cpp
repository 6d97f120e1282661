#include "rdma/limits.hpp"

#include <sluice/contract.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <sys/resource.h>

namespace sluice::rdma {

namespace {

/// What helped others, by errno.
struct advice {
    int reason;
    bool of_memory; ///< only where memory was to be registered
    const char* text;
};
constexpr std::array table{
    advice{EAGAIN, true,
           "the device has no keys left: register fewer and larger ranges, and look for processes that hold some "
           "(rdma resource show mr)"},
    advice{EFAULT, true, "the memory must be mapped, writable, and ordinary pages: not a GPU's, not another device's"},
    advice{EIO, true, "the device or its driver gave up (see dmesg), perhaps on a range too large for its tables"},
    advice{EIO, false, "the device or its driver gave up: see dmesg"},
    advice{EINVAL, false, "a size or flag that the device does not allow; its limits: ibv_devinfo -v"},
    advice{ENODEV, false, "the device is gone"},
    advice{EOPNOTSUPP, false, "the device does not do this"},
};

/// A line of /proc/self/status as a number of the given base, 0 when it isn't there [proc(5)].
std::uint64_t from_status(std::string_view name, int base) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (!line.starts_with(name)) continue;
        const auto digits = std::min(line.find_first_not_of(" \t", name.size()), line.size());
        std::uint64_t value = 0;
        std::from_chars(line.data() + digits, line.data() + line.size(), value, base);
        return value;
    }
    return 0;
}

bool may_lock_any_memory() {
    constexpr unsigned cap_ipc_lock = 14; // [capabilities(7)]
    return (from_status("CapEff:", 16) >> cap_ipc_lock & 1) != 0;
}

std::uint64_t locked_bytes() { return 1024 * from_status("VmPin:", 10); }

std::string memlock(std::size_t bytes) {
    std::string needs = bytes == 0 ? "" : std::to_string(bytes) + " bytes are needed; ";
    rlimit limit{};
    const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
    if (may_lock_any_memory() || (known && limit.rlim_cur == RLIM_INFINITY))
        return needs + "this process may lock any amount, so the machine or the device is out of memory";
    return needs + "the memlock limit is " +
           (known ? std::to_string(limit.rlim_cur) + " bytes" : std::string("unknown")) + ", of which " +
           std::to_string(locked_bytes()) +
           " are in use; raise it with ulimit -l (shell), LimitMEMLOCK= (systemd) or --ulimit memlock= (containers)";
}

} // namespace

error verbs_error(int reason, const std::string& what, std::size_t bytes) {
    if (reason == 0) reason = EIO; // a provider that says nothing
    std::string text = what;
    if (reason == ENOMEM || reason == EPERM) text += "; " + memlock(bytes);
    else {
        const auto* const found = std::ranges::find_if(
            table, [&](const advice& each) { return each.reason == reason && (bytes != 0 || !each.of_memory); });
        if (found != table.end()) text += std::string("; ") + found->text;
    }
    if (reason != ENOMEM && reason != EAGAIN && reason != EPERM) return error::from_errno(reason, text);
    return {make_error_code(errc::out_of_resources), text + ": " + std::strerror(reason)};
}

std::string memlock_shortage(std::size_t bytes) {
    SLUICE_EXPECTS(bytes > 0, "rdma: whether no memory may be locked");
    rlimit limit{};
    if (may_lock_any_memory() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
    const std::uint64_t locked = locked_bytes();
    return locked <= limit.rlim_cur && bytes <= limit.rlim_cur - locked ? std::string() : memlock(bytes);
}

} // namespace sluice::rdma
