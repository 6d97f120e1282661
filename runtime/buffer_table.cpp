#include "runtime/buffer_table.hpp"
#include "runtime/log.hpp"

#include <sluice/contract.hpp>

#include <algorithm>
#include <string>
#include <sys/resource.h>

namespace sluice::detail {

namespace {

std::vector<iovec> split(const registration& memory) {
    std::vector<iovec> parts;
    for (std::size_t at = 0; at < memory.size_bytes; at += buffer_table::slot_bytes)
        parts.push_back({memory.base + at, std::min(buffer_table::slot_bytes, memory.size_bytes - at)});
    return parts;
}

bool is_memlock(const error& e) noexcept { return e == std::errc::not_enough_memory || e == std::errc::operation_not_permitted; }

std::string memlock_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
}

} // namespace

result<void> buffer_table::add(engine& ring, const registration& memory) {
    SLUICE_EXPECTS(memory.base != nullptr && memory.size_bytes > 0, "register_memory: an empty range");
    const auto base = reinterpret_cast<std::uintptr_t>(memory.base);
    SLUICE_EXPECTS(std::none_of(entries_.begin(), entries_.end(),
                                [&](const entry& e) { return base < e.base + e.size_bytes && e.base < base + memory.size_bytes; }),
                   "register_memory: the range overlaps one that is registered already");
    const std::uint32_t count = slots_of(memory.size_bytes);
    const auto first = free_slots_.take_lowest(count, engine::buffer_slots);
    if (!first)
        return error(make_error_code(errc::out_of_resources),
                     "register_memory: " + std::to_string(memory.size_bytes) + " bytes need " + std::to_string(count) +
                         " slots of the ring in a row, of its " + std::to_string(engine::buffer_slots) + " there are " +
                         std::to_string(free_slots_.longest_free_run()) + "; register less, or in fewer pieces");
    if (auto done = ring.register_buffers(*first, split(memory)); !done) {
        free_slots_.give_back(*first, count);
        if (!is_memlock(done.error())) return done;
        SLUICE_LOG_ONCE(warning, "io_uring: registering memory: ", done.error().code().message(), "; ",
                        std::to_string(memory.size_bytes), " bytes are to be locked, for each executor anew, and the limit is ",
                        memlock_limit(),
                        " (RLIMIT_MEMLOCK, of all processes of the user); working with unregistered memory, which is "
                        "slower; raise the limit (ulimit -l, LimitMEMLOCK=infinity) or grant CAP_IPC_LOCK");
        return {};
    }
    entries_.push_back({base, memory.size_bytes, *first});
    return {};
}

void buffer_table::remove(engine& ring, const registration& memory) noexcept {
    const auto base = reinterpret_cast<std::uintptr_t>(memory.base);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [base](const entry& e) { return e.base == base; });
    if (found == entries_.end()) return;
    SLUICE_EXPECTS(found->size_bytes == memory.size_bytes, "unregister_memory: a part of what was registered");
    const std::uint32_t count = slots_of(found->size_bytes);
    ring.unregister_buffers(found->first_slot, count);
    free_slots_.give_back(found->first_slot, count);
    entries_.erase(found);
}

} // namespace sluice::detail
