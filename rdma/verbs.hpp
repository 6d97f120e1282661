#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace sluice::rdma {

/// Every call into libibverbs and librdmacm, so that tests can fail the n-th and deliver completions late or in another
/// order. Names, arguments and results are those of the manual pages, errno included. rdma/ calls nothing else of those
/// libraries, except to read fields of their structures. And what the host says of the addresses that devices take part
/// of their names from.
struct verbs {
    const char* root = "/"; ///< of sys/class/infiniband and dev/infiniband

    // devices [rdma_get_devices(3), ibv_query_device(3), ibv_query_port(3), ibv_query_gid(3)]
    ibv_context** (*get_devices)(int* count);
    void (*free_devices)(ibv_context** list);
    int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
    int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
    int (*query_gid)(ibv_context* context, std::uint8_t port, int index, ibv_gid_entry* entry); // ibv_query_gid_ex(3)
    int (*get_async_event)(ibv_context* context, ibv_async_event* event);
    void (*ack_async_event)(ibv_async_event* event);
    int (*is_fork_initialized)(); // ibv_fork_status

    // memory
    ibv_pd* (*alloc_pd)(ibv_context* context);
    int (*dealloc_pd)(ibv_pd* pd);
    ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access);
    int (*dereg_mr)(ibv_mr* mr);

    // completions
    ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
    int (*destroy_comp_channel)(ibv_comp_channel* channel);
    ibv_cq* (*create_cq)(ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel, int vector);
    int (*destroy_cq)(ibv_cq* cq);
    int (*poll_cq)(ibv_cq* cq, int entries, ibv_wc* into);
    int (*req_notify_cq)(ibv_cq* cq, int solicited_only);
    int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cookie);
    void (*ack_cq_events)(ibv_cq* cq, unsigned events);

    // queues
    ibv_srq* (*create_srq)(ibv_pd* pd, ibv_srq_init_attr* attributes);
    int (*destroy_srq)(ibv_srq* srq);
    int (*post_srq_recv)(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad);
    int (*post_send)(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad);
    int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
    int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);

    // connection manager [rdma_cm(7)]
    rdma_event_channel* (*create_event_channel)();
    void (*destroy_event_channel)(rdma_event_channel* channel);
    int (*get_cm_event)(rdma_event_channel* channel, rdma_cm_event** event);
    int (*ack_cm_event)(rdma_cm_event* event);
    int (*create_id)(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space);
    int (*destroy_id)(rdma_cm_id* id);
    int (*set_option)(rdma_cm_id* id, int level, int name, void* value, std::size_t bytes);
    int (*bind_addr)(rdma_cm_id* id, sockaddr* address);
    int (*resolve_addr)(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms);
    int (*resolve_route)(rdma_cm_id* id, int timeout_ms);
    int (*listen)(rdma_cm_id* id, int backlog);
    int (*connect)(rdma_cm_id* id, rdma_conn_param* parameters);
    int (*accept)(rdma_cm_id* id, rdma_conn_param* parameters);
    int (*reject)(rdma_cm_id* id, const void* data, std::uint8_t bytes);
    int (*disconnect)(rdma_cm_id* id);
    int (*init_qp_attr)(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask);
    int (*create_qp)(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes);
    void (*destroy_qp)(rdma_cm_id* id);

    bool (*is_of_this_host)(const sockaddr_storage& address) noexcept; // host_address.hpp
};

/// The table in use: the real libraries, unless a test has put in its own.
const verbs& api() noexcept;
/// For tests: null puts the real one back. Not while anything of rdma/ lives.
void use_verbs(const verbs* table) noexcept;
/// The real libraries, for a test's table to start from.
const verbs& real_verbs() noexcept;

} // namespace sluice::rdma
