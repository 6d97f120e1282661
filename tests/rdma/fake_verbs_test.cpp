#include "tests/rdma/fake_verbs.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

// The fake is trusted by all other tests here; these say that it finds what it is there to find.

using namespace sluice::rdma;
using sluice::testing::fake_verbs;

namespace {

bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}
void make_non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/// One side of a connection, with its own shared queue.
struct end {
    explicit end(ibv_context* on) {
        pd = api().alloc_pd(on);
        cq_channel = api().create_comp_channel(on);
        make_non_blocking(cq_channel->fd);
        cq = api().create_cq(on, 64, nullptr, cq_channel, 0);
        ibv_srq_init_attr shared{nullptr, {16, 1, 0}};
        srq = api().create_srq(pd, &shared);
        mr = api().reg_mr(pd, memory.data(), memory.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_ATOMIC);
    }
    void make_qp(rdma_cm_id* on) {
        id = on;
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = cq;
        wanted.srq = srq;
        wanted.cap = {4, 0, 1, 0, 32};
        wanted.qp_type = IBV_QPT_RC;
        REQUIRE(api().create_qp(id, pd, &wanted) == 0);
    }
    ibv_sge part(std::size_t offset, std::uint32_t bytes) {
        return {reinterpret_cast<std::uint64_t>(memory.data()) + offset, bytes, mr->lkey};
    }
    int post(ibv_wr_opcode what, ibv_sge local, std::uint64_t remote = 0, std::uint32_t key = 0,
             unsigned flags = IBV_SEND_SIGNALED) {
        ibv_send_wr one{};
        one.wr_id = ++posted;
        one.sg_list = &local;
        one.num_sge = 1;
        one.opcode = what;
        one.send_flags = flags;
        one.wr.rdma.remote_addr = remote;
        one.wr.rdma.rkey = key;
        ibv_send_wr* bad = nullptr;
        return api().post_send(id->qp, &one, &bad);
    }
    int post_receive(std::size_t offset, std::uint32_t bytes) {
        ibv_sge slot = part(offset, bytes);
        ibv_recv_wr one{99, nullptr, &slot, 1};
        ibv_recv_wr* bad = nullptr;
        return api().post_srq_recv(srq, &one, &bad);
    }
    ibv_wc poll() {
        ibv_wc wc{};
        REQUIRE(api().poll_cq(cq, 1, &wc) == 1);
        return wc;
    }
    void destroy() {
        if (id != nullptr) {
            api().destroy_qp(id);
            api().destroy_id(id);
        }
        api().destroy_srq(srq);
        api().destroy_cq(cq);
        api().destroy_comp_channel(cq_channel);
        api().dereg_mr(mr);
        api().dealloc_pd(pd);
    }
    std::array<std::byte, 4096> memory{};
    ibv_pd* pd;
    ibv_comp_channel* cq_channel;
    ibv_cq* cq;
    ibv_srq* srq;
    ibv_mr* mr;
    rdma_cm_id* id = nullptr;
    std::uint64_t posted = 0;
};

/// Two ends that the fake's connection manager connected.
struct pair {
    fake_verbs fake;
    ibv_context* context = fake.add_device();
    end client{context}, server{context};
    rdma_event_channel* events = api().create_event_channel();
    rdma_cm_id* listener = nullptr;

    rdma_cm_id* next(rdma_cm_event_type expected) {
        rdma_cm_event* event = nullptr;
        REQUIRE(api().get_cm_event(events, &event) == 0);
        CHECK(event->event == expected);
        rdma_cm_id* const id = event->id;
        api().ack_cm_event(event);
        return id;
    }
    pair() {
        make_non_blocking(events->fd);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(7471);
        api().create_id(events, &listener, nullptr, RDMA_PS_TCP);
        REQUIRE(api().bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0);
        api().listen(listener, 1);
        rdma_cm_id* id = nullptr;
        api().create_id(events, &id, nullptr, RDMA_PS_TCP);
        api().resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 0);
        next(RDMA_CM_EVENT_ADDR_RESOLVED);
        api().resolve_route(id, 0);
        next(RDMA_CM_EVENT_ROUTE_RESOLVED);
        client.make_qp(id);
        rdma_conn_param with{};
        REQUIRE(api().connect(id, &with) == 0);
        server.make_qp(next(RDMA_CM_EVENT_CONNECT_REQUEST));
        REQUIRE(api().accept(server.id, &with) == 0);
        CHECK(next(RDMA_CM_EVENT_ESTABLISHED) == client.id);
        CHECK(next(RDMA_CM_EVENT_ESTABLISHED) == server.id);
        fake.automatic(true);
    }
    ~pair() {
        client.destroy();
        server.destroy();
        api().destroy_id(listener);
        api().destroy_event_channel(events);
    }
};

} // namespace

TEST_CASE("Connected queue pairs move bytes as a device would") {
    pair p;
    p.client.memory[0] = std::byte{42};
    const auto remote = reinterpret_cast<std::uint64_t>(p.server.memory.data());
    SECTION("a write, and a read back") {
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote + 64, p.server.mr->rkey) == 0);
        CHECK(p.client.poll().status == IBV_WC_SUCCESS);
        CHECK(p.server.memory[64] == std::byte{42});
        CHECK(p.client.post(IBV_WR_RDMA_READ, p.client.part(128, 8), remote + 64, p.server.mr->rkey) == 0);
        CHECK(p.client.poll().opcode == IBV_WC_RDMA_READ);
        CHECK(p.client.memory[128] == std::byte{42});
    }
    SECTION("a send goes into the peer's slot, and finds none twice") {
        CHECK(p.server.post_receive(0, 16) == 0);
        CHECK(p.client.post(IBV_WR_SEND, p.client.part(0, 16)) == 0);
        const ibv_wc received = p.server.poll();
        CHECK(received.opcode == IBV_WC_RECV);
        CHECK(received.byte_len == 16);
        CHECK(p.server.memory[0] == std::byte{42});
        CHECK(p.client.poll().status == IBV_WC_SUCCESS);
        CHECK(p.client.post(IBV_WR_SEND, p.client.part(0, 16)) == 0);
        CHECK(p.client.poll().status == IBV_WC_RNR_RETRY_EXC_ERR);
    }
    SECTION("a wrong key fails both ends, and what follows is flushed") {
        p.fake.automatic(false);
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, 4711) == 0);
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey, 0) == 0);
        CHECK(p.fake.waiting(p.client.id->qp).size() == 2);
        p.fake.execute_all();
        CHECK(p.client.poll().status == IBV_WC_REM_ACCESS_ERR);
        CHECK(p.client.poll().status == IBV_WC_WR_FLUSH_ERR);
        CHECK(p.server.memory[0] == std::byte{0});
        CHECK(p.server.id->qp->state == IBV_QPS_ERR);
    }
    SECTION("work without a completion keeps its place until the next completion is polled") {
        for (int i = 0; i < 3; ++i)
            CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey, 0) == 0);
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey) == 0);
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey) == ENOMEM);
        CHECK(p.client.poll().wr_id == 4);
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey) == 0);
    }
    SECTION("arming wakes for what comes, not for what is there") {
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey) == 0);
        api().req_notify_cq(p.client.cq, 0);
        CHECK_FALSE(readable(p.client.cq_channel->fd));
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey) == 0);
        CHECK(p.client.post(IBV_WR_RDMA_WRITE, p.client.part(0, 8), remote, p.server.mr->rkey) == 0);
        CHECK(readable(p.client.cq_channel->fd));
        ibv_cq* cq = nullptr;
        void* cookie = nullptr;
        CHECK(api().get_cq_event(p.client.cq_channel, &cq, &cookie) == 0);
        CHECK_FALSE(readable(p.client.cq_channel->fd)); // one shot
        api().ack_cq_events(cq, 1);
    }
    SECTION("disconnecting tells both") {
        api().disconnect(p.client.id);
        CHECK(p.next(RDMA_CM_EVENT_DISCONNECTED) == p.client.id);
        CHECK(p.next(RDMA_CM_EVENT_DISCONNECTED) == p.server.id);
    }
}

TEST_CASE("Broken rules are found") {
    fake_verbs fake;
    ibv_context* const context = fake.add_device();
    ibv_pd* const pd = api().alloc_pd(context);
    ibv_comp_channel* const channel = api().create_comp_channel(context);
    ibv_cq* const cq = api().create_cq(context, 1, nullptr, channel, 0);
    std::array<std::byte, 64> memory{};
    ibv_mr* const mr = api().reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    SECTION("a domain goes before its memory") {
        CHECK(api().dealloc_pd(pd) == EBUSY);
        CHECK(fake.take_violations().size() == 1);
    }
    SECTION("a channel goes before its completion queue") {
        CHECK(api().destroy_comp_channel(channel) == EBUSY);
        CHECK(fake.take_violations().size() == 1);
    }
    SECTION("an event is read from a descriptor that blocks") {
        ibv_async_event event{};
        CHECK(api().get_async_event(context, &event) == -1);
        CHECK(fake.take_violations().size() == 1);
    }
    SECTION("remote write without local write") {
        CHECK(api().reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_WRITE) == nullptr);
        CHECK(errno == EINVAL);
    }
    SECTION("a receive into memory that the key does not cover") {
        ibv_srq_init_attr shared{nullptr, {1, 1, 0}};
        ibv_srq* const srq = api().create_srq(pd, &shared);
        ibv_sge slot{reinterpret_cast<std::uint64_t>(memory.data()), 65, mr->lkey};
        ibv_recv_wr one{1, nullptr, &slot, 1};
        ibv_recv_wr* bad = nullptr;
        CHECK(api().post_srq_recv(srq, &one, &bad) == 0);
        CHECK(fake.take_violations().size() == 1);
        CHECK(api().post_srq_recv(srq, &one, &bad) == ENOMEM);
        fake.take_violations();
        CHECK(bad == &one);
        CHECK(api().destroy_srq(srq) == 0);
    }
    SECTION("an unacknowledged event") {
        make_non_blocking(context->async_fd);
        fake.async_event(cq, IBV_EVENT_CQ_ERR);
        ibv_async_event event{};
        REQUIRE(api().get_async_event(context, &event) == 0);
        CHECK(fake.alive().unacknowledged == 1);
        api().destroy_cq(cq);
        CHECK(fake.take_violations().size() == 1);
        fake.forgive_leaks();
        return;
    }
    api().dereg_mr(mr);
    api().destroy_cq(cq);
    api().destroy_comp_channel(channel);
    api().dealloc_pd(pd);
}

TEST_CASE("The n-th call fails, by name or whatever it is") {
    fake_verbs fake;
    ibv_context* const context = fake.add_device();
    fake.fail("alloc_pd", 2, ENOMEM);
    ibv_pd* const first = api().alloc_pd(context);
    CHECK(first != nullptr);
    CHECK(api().alloc_pd(context) == nullptr);
    CHECK(errno == ENOMEM);
    CHECK(fake.failed() == "alloc_pd");
    ibv_device_attr limits{};
    fake.fail_any(1, EIO);
    CHECK(api().query_device(context, &limits) == EIO);
    CHECK(fake.failed() == "query_device");
    CHECK(api().query_device(context, &limits) == 0);
    CHECK(fake.calls("alloc_pd") == 2);
    api().dealloc_pd(first);
}
