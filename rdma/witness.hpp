#pragma once

#include <cstdint>

namespace sluice::rdma {

/// A byte of an end's memory that its peers may read. What it holds doesn't matter: the answer proves that this end has
/// taken what was posted before the read [RFC 5040, 5.5]. For devices with quirks::confirms_by_reading. A read of no
/// bytes would need no such place, but soft-iWARP answers some of them with bytes (Linux 6.12, siw_qp.c:
/// siw_activate_tx leaves the length of what it sent before).
struct witness {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    bool operator==(const witness&) const = default;
};

} // namespace sluice::rdma
