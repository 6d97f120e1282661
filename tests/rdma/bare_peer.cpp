#include "tests/rdma/bare_peer.hpp"

#include "tests/rdma/bare_cm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>

namespace sluice::bare {

namespace {

constexpr std::size_t slot_bytes = frame::header_length + frame::payload_most;
constexpr std::uint16_t slots_beside = 4;       // for frames that cost none
constexpr std::uint64_t send_mark = UINT64_MAX; // wr_id
constexpr std::uint64_t nudge_mark = send_mark - 1;
constexpr int nudges_max = 6;
constexpr int nudge_after_ms = 20;

} // namespace

memory::memory(ibv_pd* pd, std::size_t size_bytes, int access)
    : bytes_(size_bytes), mr_(ibv_reg_mr(pd, bytes_.data(), size_bytes, static_cast<unsigned>(access))) {
    if (mr_ == nullptr) throw_errno("ibv_reg_mr");
}

memory::~memory() {
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
}

peer::peer(rdma_cm_id* id, rdma_event_channel* channel, std::uint16_t slots)
    : id_(id), channel_(channel), slots_here_(slots) {}

peer::~peer() {
    if (id_->qp != nullptr) {
        rdma_disconnect(id_);
        rdma_destroy_qp(id_);
    }
    receive_memory_.reset();
    send_memory_.reset();
    witness_.reset();
    if (cq_ != nullptr) ibv_destroy_cq(cq_);
    if (completions_ != nullptr) ibv_destroy_comp_channel(completions_);
    if (pd_ != nullptr) ibv_dealloc_pd(pd_);
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
}

bytes peer::with_witness(std::span<const std::byte> greeting) {
    bytes whole(greeting.begin(), greeting.end());
    if (whole.size() != hello::length || !is_iwarp()) return whole;
    witness_.emplace(pd_, 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    append_witness(whole, witness_->address(), witness_->rkey());
    return whole;
}

void peer::make_queue_pair() {
    pd_ = ibv_alloc_pd(id_->verbs);
    if (pd_ == nullptr) throw_errno("ibv_alloc_pd");
    completions_ = ibv_create_comp_channel(id_->verbs);
    if (completions_ == nullptr) throw_errno("ibv_create_comp_channel");
    make_non_blocking(completions_->fd);
    const std::uint32_t receives = slots_here_ + slots_beside;
    cq_ = ibv_create_cq(id_->verbs, static_cast<int>(receives + 16), nullptr, completions_, 0);
    if (cq_ == nullptr) throw_errno("ibv_create_cq");
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {
        .max_send_wr = nudges_max + 2, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    check(rdma_create_qp(id_, pd_, &wanted), "rdma_create_qp");
    receive_memory_.emplace(pd_, receives * slot_bytes, IBV_ACCESS_LOCAL_WRITE);
    send_memory_.emplace(pd_, 2 * slot_bytes, IBV_ACCESS_LOCAL_WRITE);
    for (std::size_t i = 0; i < receives; ++i) post_receive(i);
}

void peer::post_receive(std::size_t slot) {
    ibv_sge where{
        .addr = receive_memory_->address() + slot * slot_bytes, .length = slot_bytes, .lkey = receive_memory_->lkey()};
    ibv_recv_wr work{.wr_id = slot, .next = nullptr, .sg_list = &where, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    if (const int rc = ibv_post_recv(id_->qp, &work, &bad); rc != 0) throw_errno("ibv_post_recv", rc);
}

std::unique_ptr<peer> peer::connect(const std::string& address, std::span<const std::byte> private_data,
                                    std::uint16_t slots) {
    const endpoint to(address);
    rdma_event_channel* channel = make_channel();
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) {
        rdma_destroy_event_channel(channel);
        throw_errno("rdma_create_id");
    }
    std::unique_ptr<peer> made(new peer(id, channel, slots)); // owns both
    check(rdma_resolve_addr(id, nullptr, to.get(), 5000), "rdma_resolve_addr");
    expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    check(rdma_resolve_route(id, 5000), "rdma_resolve_route");
    expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    made->make_queue_pair();
    const bytes greeting = made->with_witness(private_data);
    rdma_conn_param with = parameters(id->verbs, greeting);
    check(rdma_connect(id, &with), "rdma_connect");
    cm_event established = next_event(channel);
    if (established.type == RDMA_CM_EVENT_REJECTED) throw rejected(established.status, established.private_data);
    if (established.type != RDMA_CM_EVENT_ESTABLISHED) throw failure("bare peer: got " + established.text());
    made->greeted_with_ = std::move(established.private_data);
    if (made->is_iwarp()) made->nudges_left_ = nudges_max;
    return made;
}

std::string peer::device_name() const { return ibv_get_device_name(id_->verbs->device); }

std::uint8_t peer::mtu_bits() const {
    ibv_port_attr port{};
    if (is_iwarp()) return 0;
    if (const int rc = ibv_query_port(id_->verbs, id_->port_num, &port); rc != 0) throw_errno("ibv_query_port", rc);
    return static_cast<std::uint8_t>(port.active_mtu << 2);
}

bool peer::has_atomics() const {
    ibv_device_attr limits{};
    check(ibv_query_device(id_->verbs, &limits), "ibv_query_device");
    return limits.atomic_cap != IBV_ATOMIC_NONE;
}

// ---- frames ----

namespace {

bool costs_credit(const frame& f) {
    return f.type == frame::message || f.type == frame::offer || f.type == frame::immediate;
}

} // namespace

void peer::send(frame f) {
    const bool slot = f.type != frame::credit;
    const bool credit = costs_credit(f);
    while ((slot && slots_ == 0) || (credit && credits_ == 0)) wait_for_frame();
    f.payload_bytes = static_cast<std::uint16_t>(f.payload.size());
    f.slots = static_cast<std::uint16_t>(std::exchange(owed_slots_, 0));
    f.credits = static_cast<std::uint16_t>(std::exchange(owed_credits_, 0));
    if (slot) --slots_;
    if (credit) --credits_;
    if (!send_exactly(f)) throw failure("bare peer: a frame of type " + std::to_string(f.type) + " was not sent");
}

bool peer::send_exactly(std::span<const std::byte> content) {
    std::ranges::copy(content, send_memory_->data().begin());
    ibv_sge what{.addr = send_memory_->address(),
                 .length = static_cast<std::uint32_t>(content.size()),
                 .lkey = send_memory_->lkey()};
    ibv_send_wr work{};
    work.opcode = IBV_WR_SEND;
    work.sg_list = &what;
    work.num_sge = 1;
    const ibv_wc_status status = run(work);
    if (status == IBV_WC_RNR_RETRY_EXC_ERR) throw failure("bare peer: the receiver was not ready for a frame");
    return status == IBV_WC_SUCCESS;
}

void peer::take_in(std::span<const std::byte> content) {
    frame f = parse_frame(content);
    ++frames_;
    slots_ += f.slots;
    credits_ += f.credits;
    if (f.type == frame::credit) {
        if (f.slots == 0 && f.credits == 0) throw failure("bare peer: a credit frame that gives nothing back");
        return;
    }
    if (costs_credit(f)) ++owed_credits_;
    if (++owed_slots_ > slots_here_)
        throw failure("bare peer: the other side spent more than the " + std::to_string(slots_here_) + " slots it has");
    received_.push_back(std::move(f));
}

void peer::wait_for_frame() {
    const std::uint64_t before = frames_;
    while (frames_ == before)
        if (!look()) wait_for_something();
}

frame peer::receive() {
    while (received_.empty()) wait_for_frame();
    frame f = std::move(received_.front());
    received_.pop_front();
    if (owed_slots_ > slots_here_ / 2U) send({.type = frame::credit});
    return f;
}

frame peer::receive(frame::kind wanted) {
    frame f = receive();
    if (f.type != wanted)
        throw failure("bare peer: a frame of type " + std::to_string(f.type) + " came, it should be " +
                      std::to_string(wanted));
    return f;
}

// ---- one-sided ----

namespace {

ibv_send_wr one_sided(ibv_wr_opcode what, ibv_sge& local, std::uint64_t address, std::uint32_t key) {
    ibv_send_wr work{};
    work.opcode = what;
    work.sg_list = &local;
    work.num_sge = 1;
    work.wr.rdma.remote_addr = address;
    work.wr.rdma.rkey = key;
    return work;
}

ibv_sge all_of(memory& m) {
    return {.addr = m.address(), .length = static_cast<std::uint32_t>(m.data().size()), .lkey = m.lkey()};
}

} // namespace

ibv_wc_status peer::read(std::uint64_t address, std::uint32_t key, memory& into) {
    ibv_sge local = all_of(into);
    ibv_send_wr work = one_sided(IBV_WR_RDMA_READ, local, address, key);
    return run(work);
}

ibv_wc_status peer::write(std::uint64_t address, std::uint32_t key, memory& from) {
    ibv_sge local = all_of(from);
    ibv_send_wr work = one_sided(IBV_WR_RDMA_WRITE, local, address, key);
    return run(work);
}

// ---- completions ----

/// Posts one work request and waits until it is done; frames that come meanwhile are kept.
ibv_wc_status peer::run(ibv_send_wr& work) {
    work.wr_id = send_mark;
    work.send_flags = IBV_SEND_SIGNALED;
    sent_.reset();
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(id_->qp, &work, &bad) != 0) return IBV_WC_WR_FLUSH_ERR;
    while (!sent_)
        if (!look() && !sent_) sleep_until_something(); // it comes back in any case
    return *sent_;
}

/// Whether there was a completion.
bool peer::look() {
    ibv_wc seen{};
    const int found = ibv_poll_cq(cq_, 1, &seen);
    if (found < 0) throw failure("bare peer: ibv_poll_cq failed");
    if (found == 0) return false;
    if (seen.wr_id == send_mark) {
        sent_ = seen.status;
        return true;
    }
    if (seen.status != IBV_WC_SUCCESS || seen.wr_id == nudge_mark) {
        flushed_ = true;
        return true;
    }
    const auto slot = static_cast<std::size_t>(seen.wr_id);
    take_in(receive_memory_->data().subspan(slot * slot_bytes, seen.byte_len));
    post_receive(slot);
    return true;
}

void peer::wait_for_something() {
    if (disconnected_ || flushed_) throw failure("bare peer: the other side is gone");
    sleep_until_something();
}

/// Arms, looks once more, and sleeps until there may be a completion or an event of the connection manager.
void peer::sleep_until_something() {
    if (const int rc = ibv_req_notify_cq(cq_, 0); rc != 0) throw_errno("ibv_req_notify_cq", rc);
    if (look()) return;
    std::array<pollfd, 2> watched{{{.fd = completions_->fd, .events = POLLIN, .revents = 0},
                                   {.fd = channel_->fd, .events = POLLIN, .revents = 0}}};
    wait_for(watched);
    ibv_cq* which = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(completions_, &which, &context) == 0) ibv_ack_cq_events(which, 1);
    take_cm_events();
}

void peer::wait_for(std::span<pollfd> watched) {
    int ready = 0;
    for (; ready == 0 && nudges_left_ > 0; --nudges_left_) {
        ready = ::poll(watched.data(), watched.size(), nudge_after_ms);
        if (ready == 0) nudge();
    }
    if (ready == 0) ready = ::poll(watched.data(), watched.size(), wait_limit_ms);
    if (ready < 0 && errno != EINTR) throw_errno("poll");
    if (ready == 0) throw failure("bare peer: nothing came in " + std::to_string(wait_limit_ms) + " ms");
}

/// What came first a soft-iWARP peer may see only when more comes [rdma/quirks.hpp]: a write of no bytes.
void peer::nudge() {
    ibv_send_wr work{};
    work.opcode = IBV_WR_RDMA_WRITE;
    work.wr_id = nudge_mark;
    ibv_send_wr* bad = nullptr;
    static_cast<void>(ibv_post_send(id_->qp, &work, &bad)); // the other side may have ended it
}

void peer::take_cm_events() {
    while (const auto e = event_if_any(channel_))
        if (e->type == RDMA_CM_EVENT_DISCONNECTED) disconnected_ = true;
}

// ---- the end ----

void peer::wait_until_disconnected() {
    for (take_cm_events(); !disconnected_; take_cm_events()) {
        pollfd watched{.fd = channel_->fd, .events = POLLIN, .revents = 0};
        wait_for({&watched, 1});
    }
}

void peer::disconnect() { rdma_disconnect(id_); }

} // namespace sluice::bare
