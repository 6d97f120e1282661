#pragma once

#include <sluice/contract.hpp>
#include <sluice/transfer_operation.hpp>

#include <cstdint>

namespace sluice::rdma {

/// Where a transfer of a connection over RDMA is; kept in transfer::phase.
enum class rdma_phase : std::uint32_t {
    none,
    waits_for_room,   ///< one-sided: not all of it is in send queues yet
    posted,           ///< one-sided: all of it is
    waits_for_credit, ///< send, write_with_immediate: not all of it is in the send queue yet
    sent,             ///< all of it is
    offered,          ///< large send: the peer knows of it
    streaming,        ///< large send: the peer wants it
    leaves,           ///< canceled or failed with work in flight: ends when that comes back
    receives,         ///< receive: waits for a message
    filling,          ///< receive: a large message is on its way into it
};
inline rdma_phase phase_of(const detail::transfer& t) noexcept { return static_cast<rdma_phase>(t.phase); }
inline void set_phase(detail::transfer& t, rdma_phase p) noexcept { t.phase = static_cast<std::uint32_t>(p); }

// transfer::id counts its work requests in send queues; transfer::progress_bytes what was given to them.
inline bool has_work(const detail::transfer& t) noexcept { return t.id != 0; }
inline void work_added(detail::transfer& t) noexcept { ++t.id; }
inline void work_done(detail::transfer& t) noexcept {
    SLUICE_EXPECTS(t.id != 0, "rdma: a work request came back twice");
    --t.id;
}

// transfer::value of a read or write, which gives none: the key of this end's memory, which stays registered as long as
// an operation is on it.
inline std::uint32_t local_key_of(const detail::transfer& t) noexcept { return static_cast<std::uint32_t>(t.value); }
inline void keep_local_key(detail::transfer& t, std::uint32_t key) noexcept { t.value = key; }

} // namespace sluice::rdma
