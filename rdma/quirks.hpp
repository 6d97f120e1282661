#pragma once

#include "rdma/verbs.hpp"

namespace sluice::rdma {

/// What a kind of device does differently from the rest, as far as it matters here.
struct quirks {
    const char* kind = "";                 ///< for people: "mlx5", "Soft-RoCE (rxe)"
    bool software = false;                 ///< the CPU does the work; PCIe rules don't apply
    bool iwarp = false;                    ///< over TCP: no atomics, no immediate data, the connecting end sends first
    bool atomics = true;                   ///< fetch_add and compare_swap by the device
    bool immediate_data = true;            ///< RDMA WRITE with immediate
    bool resizes_completion_queues = true; ///< ibv_resize_cq
    bool relaxed_ordering = true;          ///< IBV_ACCESS_RELAXED_ORDERING gains something
    /// A write or send can complete before a read that was posted before it. Elsewhere completions of a send queue keep
    /// their order, and one retires all before it [ibv_post_send(3)].
    bool writes_overtake_reads = false;
    /// The target of an RDMA READ must be registered for remote writing: the answer is one [RFC 5040, 5.2].
    bool read_target_needs_remote_write = false;
};

/// By vendor, not by name: names can be changed [rdma-dev(8)].
quirks quirks_of(const ibv_device& about, const ibv_device_attr& limits) noexcept;

} // namespace sluice::rdma
