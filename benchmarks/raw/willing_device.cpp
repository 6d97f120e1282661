#include "benchmarks/raw/willing_device.hpp"

#include "benchmarks/bench.hpp"
#include "rdma/device.hpp"
#include "rdma/frame.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

namespace sluice::bench::raw {

namespace {

willing_device* only = nullptr;

constexpr std::uint32_t key = 0x1001; // of all memory

/// A descriptor on which nothing ever comes.
int silent_fd() {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) bench::fail("eventfd failed");
    return fd;
}

int nothing_there() noexcept {
    errno = EAGAIN;
    return -1;
}

} // namespace

void willing_device::queue::push(const ended& e) {
    if (tail - head == entries) bench::fail("the device of memory has more work at once than it has room for");
    ring[tail++ % entries] = e;
}

willing_device& willing_device::the() noexcept { return *only; }

int willing_device::post(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) noexcept {
    *bad = nullptr;
    const pair& on = *reinterpret_cast<pair*>(qp); // its first member
    for (const ibv_send_wr* w = list; w != nullptr; w = w->next) {
        if ((w->send_flags & IBV_SEND_SIGNALED) != 0) on.sends->push({w->wr_id, qp->qp_num, 0});
        if (w->opcode != IBV_WR_SEND) [[likely]] continue;
        const auto type = static_cast<rdma::frame_type>(*reinterpret_cast<const std::uint8_t*>(w->sg_list[0].addr));
        if (type == rdma::frame_type::goodbye)
            the().deliver(rdma::frame{.type = rdma::frame_type::goodbye_ack}.encode());
    }
    return 0;
}

int willing_device::poll(ibv_cq* cq, int entries, ibv_wc* into) noexcept {
    queue& from = *reinterpret_cast<queue*>(cq); // its first member
    const std::uint32_t count = std::min(static_cast<std::uint32_t>(entries), from.tail - from.head);
    for (std::uint32_t i = 0; i < count; ++i) {
        const queue::ended& e = from.ring[from.head++ % queue::entries];
        into[i].wr_id = e.wr_id;
        into[i].status = IBV_WC_SUCCESS;
        into[i].qp_num = e.qp_num;
        into[i].byte_len = e.bytes;
    }
    return static_cast<int>(count);
}

void willing_device::deliver(std::span<const std::byte> frame) {
    if (receives_.empty() || pairs_.empty()) bench::fail("the device of memory has no receive for a frame");
    std::memcpy(reinterpret_cast<void*>(slots_.front().addr), frame.data(), frame.size());
    const pair& to = *pairs_.back();
    to.receives->push({receives_.front().wr_id, to.verbs.qp_num, static_cast<std::uint32_t>(frame.size())});
    receives_.pop_front();
    slots_.pop_front();
}

/// What is not here isn't called: no address is resolved, no request is answered.
rdma::verbs willing_device::table() const noexcept {
    rdma::verbs t = rdma::real_verbs();
    t.get_devices = [](int* count) {
        *count = 1;
        return the().list_;
    };
    t.free_devices = [](ibv_context**) {};
    t.query_device = [](ibv_context*, ibv_device_attr* a) {
        *a = {};
        a->max_mr_size = UINT64_MAX;
        a->max_qp = a->max_cq = a->max_mr = 1024;
        a->max_qp_wr = 4096;
        a->max_sge = 4;
        a->max_cqe = 1 << 16;
        a->max_srq_wr = 4096;
        a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
        a->atomic_cap = IBV_ATOMIC_HCA;
        a->phys_port_cnt = 1;
        return 0;
    };
    t.query_port = [](ibv_context*, std::uint8_t, ibv_port_attr* a) {
        *a = {};
        a->state = IBV_PORT_ACTIVE;
        a->max_msg_sz = 1U << 30;
        return 0;
    };
    t.get_async_event = [](ibv_context*, ibv_async_event*) { return nothing_there(); };
    t.is_fork_initialized = [] { return static_cast<int>(IBV_FORK_UNNEEDED); };
    t.alloc_pd = [](ibv_context*) { return &the().pd_; };
    t.dealloc_pd = [](ibv_pd*) { return 0; };
    t.reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int) {
        auto* mr = new ibv_mr{};
        mr->pd = pd;
        mr->addr = address;
        mr->length = bytes;
        mr->lkey = mr->rkey = key;
        return mr;
    };
    t.dereg_mr = [](ibv_mr* mr) { return delete mr, 0; };
    t.create_comp_channel = [](ibv_context*) { return &the().channel_; };
    t.destroy_comp_channel = [](ibv_comp_channel*) { return 0; };
    t.create_cq = [](ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
        auto made = std::make_unique<queue>();
        made->verbs.context = context;
        made->verbs.cqe = entries;
        return &the().queues_.emplace_back(std::move(made))->verbs;
    };
    t.destroy_cq = [](ibv_cq*) { return 0; };
    t.poll_cq = &poll;
    t.req_notify_cq = [](ibv_cq*, int) { return 0; };
    t.get_cq_event = [](ibv_comp_channel*, ibv_cq**, void**) { return nothing_there(); };
    t.ack_cq_events = [](ibv_cq*, unsigned) {};
    t.create_srq = [](ibv_pd*, ibv_srq_init_attr*) { return &the().srq_; };
    t.destroy_srq = [](ibv_srq*) { return 0; };
    t.post_srq_recv = [](ibv_srq*, ibv_recv_wr* list, ibv_recv_wr** bad) {
        *bad = nullptr;
        for (const ibv_recv_wr* w = list; w != nullptr; w = w->next) {
            the().receives_.push_back(*w);
            the().slots_.push_back(w->sg_list[0]);
        }
        return 0;
    };
    t.post_send = &post;
    t.modify_qp = [](ibv_qp*, ibv_qp_attr*, int) { return 0; }; // nothing is in flight, so nothing is flushed
    t.create_event_channel = [] { return &the().cm_channel_; };
    t.destroy_event_channel = [](rdma_event_channel*) {};
    t.get_cm_event = [](rdma_event_channel*, rdma_cm_event**) { return nothing_there(); };
    t.create_id = [](rdma_event_channel* channel, rdma_cm_id** id, void*, rdma_port_space) {
        auto* made = new rdma_cm_id{};
        made->channel = channel;
        made->verbs = &the().context_;
        made->port_num = 1;
        *id = made;
        return 0;
    };
    t.destroy_id = [](rdma_cm_id* id) { return delete id, 0; };
    t.disconnect = [](rdma_cm_id*) { return 0; };
    t.create_qp = [](rdma_cm_id* id, ibv_pd*, ibv_qp_init_attr* with) {
        auto made = std::make_unique<pair>();
        made->verbs.context = id->verbs;
        made->verbs.qp_num = the().next_number();
        made->sends = reinterpret_cast<queue*>(with->send_cq);
        made->receives = reinterpret_cast<queue*>(with->recv_cq);
        id->qp = &the().pairs_.emplace_back(std::move(made))->verbs;
        return 0;
    };
    t.destroy_qp = [](rdma_cm_id* id) { id->qp = nullptr; };
    return t;
}

willing_device::willing_device() {
    if (only != nullptr) bench::fail("one device of memory at a time");
    only = this;
    std::strcpy(about_.name, "willing");
    about_.node_type = IBV_NODE_CA;
    about_.transport_type = IBV_TRANSPORT_IB;
    context_.device = &about_;
    context_.async_fd = silent_fd();
    context_.num_comp_vectors = 1;
    context_.ops.post_send = &post;
    context_.ops.poll_cq = &poll;
    channel_.fd = silent_fd();
    cm_channel_.fd = silent_fd();
    bare_cq_.verbs.context = &context_;
    bare_qp_.verbs.context = &context_;
    bare_qp_.sends = bare_qp_.receives = &bare_cq_;
    table_ = table();
    rdma::use_verbs(&table_);
}

willing_device::~willing_device() {
    rdma::device::close_all();
    rdma::use_verbs(nullptr);
    for (const int fd : {context_.async_fd, channel_.fd, cm_channel_.fd}) close(fd);
    only = nullptr;
}

} // namespace sluice::bench::raw
