#include "rdma/lane.hpp"

#include "rdma/rdma_connection.hpp"

#include <chrono>

namespace sluice::rdma {

lane::lane(rdma_connection& connection, std::uint32_t index, rdma_lane_parts parts) noexcept
    : connection_(connection), index_(index), parts_(std::move(parts)), port_(parts_.id->get()->port_num) {
    SLUICE_EXPECTS(parts_.qp != nullptr, "rdma: a lane without a queue pair");
    parts_.id->observe(this);
    parts_.qp->set_user(this);
}

lane::~lane() { end(); }

void lane::shut() noexcept {
    if (std::exchange(shut_, true)) return;
    api().disconnect(parts_.id->get()); // it may be disconnected already, or its device gone: nothing is lost then
    parts_.qp->fail();
}

void lane::end() noexcept {
    const rdma_lane_parts ended = release(); // whose queue pair goes first
    if (ended.qp == nullptr) return;
    constexpr auto flush_limit = std::chrono::seconds(1); // flushing needs no peer: milliseconds at most
    ended.qp->drain_now(flush_limit);
}

rdma_lane_parts lane::release() noexcept {
    if (parts_.qp == nullptr) return {};
    parts_.id->observe(nullptr);
    parts_.qp->set_user(nullptr);
    shut();
    return std::move(parts_);
}

void lane::on_work_done(const work& w, const completion& how) noexcept { connection_.on_work_done(*this, w, how); }
void lane::on_frame(std::span<const std::byte> bytes) noexcept { connection_.on_frame(*this, bytes); }
void lane::on_room() noexcept { connection_.on_room(); }
void lane::on_queue_pair_event(ibv_event_type what) noexcept { connection_.on_queue_pair_event(*this, what); }
void lane::on_cm_event(cm_id&, cm_event e) noexcept { connection_.on_cm_event(e); }

} // namespace sluice::rdma
