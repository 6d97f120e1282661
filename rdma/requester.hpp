#pragma once

#include <sluice/result.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/transfer_list.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/result_words.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::rdma {

class lane;
class rdma_connection;

/// The one-sided operations that this end started: cuts them into work requests, spreads these over the lanes, and
/// counts them back.
class requester {
public:
    explicit requester(rdma_connection& connection) noexcept;

    /// read, write, atomics, checked; not of zero bytes.
    void start(detail::transfer& t) noexcept;
    /// Ends what has no work in flight; else the connection has to go, since a work request can't be withdrawn.
    void cancel(detail::transfer& t, error why) noexcept;
    void on_work_done(detail::transfer& t, const work& w, const completion& how) noexcept;
    /// Puts work into the send queues as far as there is room.
    void pump() noexcept;
    bool all_left() const noexcept { return waiting_.empty(); }
    /// No more work is added: what has none in flight ends with `why`, the rest when it comes back.
    void close(const error& why) noexcept;

    /// Of t, whose part `w` failed, or which is given up: what it ends with, unless all of it succeeded.
    void set_reason(const detail::transfer& t, error why);
    bool has_reason(const detail::transfer& t) const noexcept;
    /// Ends t, with its reason if it has one, else with the connection's cause.
    void end_failed(detail::transfer& t) noexcept;

private:
    work next_work(detail::transfer& t) noexcept;
    lane* next_lane() noexcept;
    void finish(detail::transfer& t) noexcept;

    rdma_connection& connection_;
    net::transfer_list waiting_;
    std::uint32_t active_ = 0; // with work in flight
    std::uint32_t turn_ = 0;   // the lane that was last
    result_words words_;
    std::vector<std::pair<const detail::transfer*, error>> reasons_;
};

} // namespace sluice::rdma
