#include "rdma/path_mtu.hpp"

#include <sluice/contract.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace sluice::rdma {

namespace {

/// What the connection manager means for this state [rdma_init_qp_attr(3)].
int attributes_of(rdma_cm_id& id, ibv_qp_state state, ibv_qp_attr& into, int& mask) noexcept {
    into = {};
    into.qp_state = state;
    return api().init_qp_attr(&id, &into, &mask);
}

int modify(ibv_qp* qp, ibv_qp_attr& to, int mask) noexcept {
    const int failed = api().modify_qp(qp, &to, mask); // an errno value [ibv_modify_qp(3)]
    if (failed == 0) return 0;
    if (failed > 0) errno = failed;
    return -1;
}

/// From wherever it is to ready-to-send, as librdmacm does it, but for the MTU. `with`: what this end answers, where
/// the connection manager does not know that yet.
int make_ready(rdma_cm_id& id, std::uint8_t path_mtu, const rdma_conn_param* with) noexcept {
    ibv_qp_attr attributes{};
    int mask = 0;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        if (attributes_of(id, state, attributes, mask) != 0) return -1;
        if (state == IBV_QPS_RTR) attributes.path_mtu = static_cast<ibv_mtu>(path_mtu);
        if (state == IBV_QPS_RTR && with != nullptr) attributes.max_dest_rd_atomic = with->responder_resources;
        if (state == IBV_QPS_RTS && with != nullptr) attributes.max_rd_atomic = with->initiator_depth;
        if (modify(id.qp, attributes, mask) != 0) return -1;
    }
    return 0;
}

/// Whether the connection manager means more than this; -1 and errno where it can't say.
int means_more(rdma_cm_id& id, std::uint8_t path_mtu) noexcept {
    ibv_qp_attr attributes{};
    int mask = 0;
    if (path_mtu == 0) return 0;
    if (attributes_of(id, IBV_QPS_RTR, attributes, mask) != 0) return -1;
    return (mask & IBV_QP_PATH_MTU) != 0 && attributes.path_mtu > path_mtu ? 1 : 0;
}

} // namespace

std::uint8_t port_mtu(const rdma_cm_id& id) noexcept {
    SLUICE_EXPECTS(id.verbs != nullptr, "rdma: the MTU of an id without a device");
    ibv_port_attr port{};
    if (id.verbs->device->transport_type == IBV_TRANSPORT_IWARP) return 0;
    if (api().query_port(id.verbs, id.port_num, &port) != 0) return 0;
    return port.active_mtu < IBV_MTU_256 || port.active_mtu > IBV_MTU_4096 ? 0
                                                                           : static_cast<std::uint8_t>(port.active_mtu);
}

std::uint8_t smaller_mtu(std::uint8_t a, std::uint8_t b) noexcept {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

int accept_with_mtu(rdma_cm_id& id, rdma_conn_param& with, std::uint8_t path_mtu) noexcept {
    SLUICE_EXPECTS(id.qp != nullptr, "rdma: a connection is accepted without a queue pair");
    const int more = means_more(id, path_mtu);
    if (more < 0) return -1;
    if (more == 0) return api().accept(&id, &with);
    if (make_ready(id, path_mtu, &with) != 0) return -1;
    // librdmacm makes the queue pair ready itself, unless the id has none and its number is given [rdma_accept(3)].
    ibv_qp* const qp = std::exchange(id.qp, nullptr);
    with.qp_num = qp->qp_num;
    with.srq = qp->srq != nullptr;
    const int rc = api().accept(&id, &with);
    id.qp = qp;
    return rc;
}

int lower_mtu(rdma_cm_id& id, std::uint8_t path_mtu) noexcept {
    SLUICE_EXPECTS(id.qp != nullptr, "rdma: the path MTU of an id without a queue pair");
    const int more = means_more(id, path_mtu);
    if (more <= 0) return more;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    if (modify(id.qp, attributes, IBV_QP_STATE) != 0) return -1;
    return make_ready(id, path_mtu, nullptr);
}

} // namespace sluice::rdma
