#include "rdma/quirks.hpp"

#include <algorithm>
#include <array>

namespace sluice::rdma {

namespace {

/// The kinds that are told apart; whatever is in none of the rows is taken for one that keeps to the standard.
struct row {
    std::uint32_t vendor; ///< vendor_id [ibv_query_device(3)]
    quirks is;
};
constexpr std::array table{
    // drivers/infiniband/sw/rxe/rxe_param.h: RXE_VENDOR_ID
    row{0xffffff, {.kind = "Soft-RoCE (rxe)", .software = true, .relaxed_ordering = false}},
    // drivers/infiniband/sw/siw/siw.h: SIW_VENDOR_ID; it checks the target of a read for local writing only, flushes no
    // reads that wait for their answer when the peer closed first (siw_qp.c: siw_qp_nextstate_from_close), writes to its
    // socket in the posting thread without MSG_NOSIGNAL, takes the wrong part of the first page for a short message from
    // two (siw_qp_tx.c: siw_tx_ctrl, siw_try_1seg), waits for TCP to connect (siw_cm.c: siw_connect), and looks for data
    // only when told of it, but tells its queue pair of none before it has sent its answer (siw_cm.c: siw_accept)
    row{0x626d74,
        {.kind = "soft-iWARP (siw)",
         .software = true,
         .relaxed_ordering = false,
         .forgets_reads = true,
         .raises_sigpipe = true,
         .blocks_in_connect = true,
         .misses_first_data = true,
         .short_answers_in_one_page = true}},
    // Mellanox's OUI, which ConnectX-3 says as well as its successors
    row{0x02c9, {.kind = "mlx4 or mlx5"}},
    row{0x15b3, {.kind = "mlx5"}},
};

} // namespace

quirks quirks_of(const ibv_device& about, const ibv_device_attr& limits) noexcept {
    const auto found = std::ranges::find(table, limits.vendor_id, &row::vendor);
    quirks q = found != table.end() ? found->is : quirks{.kind = "standard"};
    if (about.transport_type == IBV_TRANSPORT_IWARP) {
        if (found == table.end()) q.kind = "iWARP";
        q.iwarp = true;
        q.confirms_by_reading = true;
        q.read_target_needs_remote_write = !q.software;
        q.atomics = false;
    }
    if (limits.atomic_cap == IBV_ATOMIC_NONE) q.atomics = false;
    return q;
}

} // namespace sluice::rdma
