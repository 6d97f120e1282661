#include "rdma/verbs.hpp"
#include "rdma/fork.hpp"
#include "rdma/host_address.hpp"

#include <atomic>

namespace sluice::rdma {

namespace {

// Several of these names are macros or inline functions of <infiniband/verbs.h>, so that their address can't be taken.

constexpr verbs real{
    .get_devices = [](int* count) { return rdma_get_devices(count); },
    .free_devices = [](ibv_context** list) { rdma_free_devices(list); },
    .query_device = [](ibv_context* context, ibv_device_attr* attributes) {
        return ibv_query_device(context, attributes);
    },
    .query_port = [](ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) -> int {
        return ibv_query_port(context, port, attributes);
    },
    .query_gid = [](ibv_context* context, std::uint8_t port, int index, ibv_gid_entry* entry) {
        return ibv_query_gid_ex(context, port, static_cast<std::uint32_t>(index), entry, 0);
    },
    .get_async_event = [](ibv_context* context, ibv_async_event* event) { return ibv_get_async_event(context, event); },
    .ack_async_event = [](ibv_async_event* event) { ibv_ack_async_event(event); },
    .is_fork_initialized = []() -> int { return ibv_is_fork_initialized(); },

    .alloc_pd = [](ibv_context* context) { return ibv_alloc_pd(context); },
    .dealloc_pd = [](ibv_pd* pd) { return ibv_dealloc_pd(pd); },
    .reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int access) -> ibv_mr* {
        return ibv_reg_mr(pd, address, bytes, static_cast<unsigned>(access)); // macro that passes it on as unsigned
    },
    .dereg_mr = [](ibv_mr* mr) { return ibv_dereg_mr(mr); },

    .create_comp_channel = [](ibv_context* context) { return ibv_create_comp_channel(context); },
    .destroy_comp_channel = [](ibv_comp_channel* channel) { return ibv_destroy_comp_channel(channel); },
    .create_cq = [](ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel, int vector) {
        return ibv_create_cq(context, entries, cookie, channel, vector);
    },
    .destroy_cq = [](ibv_cq* cq) { return ibv_destroy_cq(cq); },
    .poll_cq = [](ibv_cq* cq, int entries, ibv_wc* into) { return ibv_poll_cq(cq, entries, into); },
    .req_notify_cq = [](ibv_cq* cq, int solicited_only) { return ibv_req_notify_cq(cq, solicited_only); },
    .get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void** cookie) {
        return ibv_get_cq_event(channel, cq, cookie);
    },
    .ack_cq_events = [](ibv_cq* cq, unsigned events) { ibv_ack_cq_events(cq, events); },

    .create_srq = [](ibv_pd* pd, ibv_srq_init_attr* attributes) { return ibv_create_srq(pd, attributes); },
    .destroy_srq = [](ibv_srq* srq) { return ibv_destroy_srq(srq); },
    .post_srq_recv = [](ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) { return ibv_post_srq_recv(srq, list, bad); },
    .post_send = [](ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) { return ibv_post_send(qp, list, bad); },
    .modify_qp = [](ibv_qp* qp, ibv_qp_attr* attributes, int mask) { return ibv_modify_qp(qp, attributes, mask); },
    .query_qp = [](ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
        return ibv_query_qp(qp, attributes, mask, init);
    },

    .create_event_channel = ::rdma_create_event_channel,
    .destroy_event_channel = ::rdma_destroy_event_channel,
    .get_cm_event = ::rdma_get_cm_event,
    .ack_cm_event = ::rdma_ack_cm_event,
    .create_id = ::rdma_create_id,
    .destroy_id = ::rdma_destroy_id,
    .set_option = ::rdma_set_option,
    .bind_addr = ::rdma_bind_addr,
    .resolve_addr = ::rdma_resolve_addr,
    .resolve_route = ::rdma_resolve_route,
    .listen = ::rdma_listen,
    .connect = ::rdma_connect,
    .accept = ::rdma_accept,
    .reject = ::rdma_reject,
    .disconnect = ::rdma_disconnect,
    .init_qp_attr = ::rdma_init_qp_attr,
    .create_qp = ::rdma_create_qp,
    .destroy_qp = ::rdma_destroy_qp,

    .is_of_this_host = is_of_this_host,
};

constinit std::atomic<const verbs*> in_use{&real};

} // namespace

const verbs& api() noexcept { return *in_use.load(std::memory_order_acquire); }

void use_verbs(const verbs* table) noexcept {
    in_use.store(table == nullptr ? &real : table, std::memory_order_release);
    forget_claim();
}

const verbs& real_verbs() noexcept { return real; }

} // namespace sluice::rdma
