#pragma once

#include "rdma/verbs.hpp"

namespace sluice::rdma {

/// What a kind of device does differently from the rest, as far as it matters here.
struct quirks {
    const char* kind = "";        ///< for people: "mlx4 or mlx5", "Soft-RoCE (rxe)"
    bool software = false;        ///< the CPU does the work; PCIe rules don't apply
    bool iwarp = false;           ///< over TCP: no atomics, no immediate data, the connecting end sends first
    bool atomics = true;          ///< fetch_add and compare_swap by the device
    bool relaxed_ordering = true; ///< IBV_ACCESS_RELAXED_ORDERING gains something
    /// That a write or send has completed says only that TCP has it, as it does for iWARP [RFC 5040, 5.5]: the
    /// peer may not have it, a read before it may not have been answered, and soft-iWARP reads its buffer still. Only
    /// the answer to a read proves that the peer has taken what was posted before the read.
    bool confirms_by_reading = false;
    /// Once in error it says of some reads never what became of them, and of the rest at once.
    bool forgets_reads = false;
    /// Posting work on a connection that the peer has ended sends this thread a SIGPIPE.
    bool raises_sigpipe = false;
    /// rdma_connect returns only when the peer's host has answered, or TCP has given up, which takes minutes.
    bool blocks_in_connect = false;
    /// What the connecting end sends first may lie unseen at the accepting end until more comes.
    bool misses_first_data = false;
    /// Answers to short reads that cross a page are wrong.
    bool short_answers_in_one_page = false;
    /// The target of an RDMA READ must be registered for remote writing: the answer is one [RFC 5040, 5.2].
    bool read_target_needs_remote_write = false;
};

/// By vendor, not by name: names can be changed [rdma-dev(8)].
quirks quirks_of(const ibv_device& about, const ibv_device_attr& limits) noexcept;

} // namespace sluice::rdma
