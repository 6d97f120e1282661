#include "rdma/device.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tests/support/run.hpp"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <functional>
#include <latch>
#include <poll.h>
#include <thread>
#include <vector>

using namespace sluice;
using rdma::device;
using sluice::testing::fake_verbs;

namespace {

struct heard {
    ibv_event_type what;
    std::uint32_t qp_num;
    std::uint8_t port;
    friend bool operator==(const heard&, const heard&) = default;
};

class listener final : public rdma::device_observer {
public:
    listener(executor& home, device& on) : device_observer(home), on_(on) { on.add(*this); }
    ~listener() {
        if (listening) on_.remove(*this);
    }
    void on_device_event(ibv_event_type what, std::uint32_t qp_num, std::uint8_t port) noexcept override {
        all.push_back({what, qp_num, port});
        if (std::this_thread::get_id() != thread) ++wrong_thread;
        if (then) then();
    }
    bool owns_queue(const void* queue) const noexcept override { return queue == mine; }
    void stop() {
        on_.remove(*this);
        listening = false;
    }

    std::vector<heard> all;
    const void* mine = nullptr;
    std::function<void()> then;
    int wrong_thread = 0;
    std::thread::id thread = std::this_thread::get_id();
    bool listening = true;

private:
    device& on_;
};

struct world : fake_verbs {
    ~world() { device::close_all(); }
    ibv_context* context = add_device();
    device& d = *device::of(context).value();
};

bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

/// Everything that was posted before.
void run_posts(executor& home) {
    struct : detail::posted_node {
        executor* home = nullptr;
    } last;
    last.home = &home;
    last.run = [](detail::posted_node& node) noexcept { static_cast<decltype(last)&>(node).home->stop(); };
    home.post(last);
    home.run();
}

} // namespace

TEST_CASE("All that is there is handed out at once, in order") {
    world fake;
    const auto home = testing::make_executor();
    listener one(*home, fake.d);
    for (std::uint8_t i = 0; i < 100; ++i)
        fake.async_event(fake.context, i % 2 == 0 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, i);
    CHECK(readable(fake.d.event_fd()));
    fake.d.drain_events();
    CHECK_FALSE(readable(fake.d.event_fd()));
    REQUIRE(one.all.size() == 100);
    for (std::uint8_t i = 0; i < 100; ++i)
        CHECK(one.all[i] == heard{i % 2 == 0 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, 0, i});
    CHECK(fake.calls("ack_async_event") == 100);
    fake.d.drain_events(); // ready for nothing
    CHECK(one.all.size() == 100);
}

TEST_CASE("An observer may leave from within, and hears of nothing more") {
    world fake;
    const auto home = testing::make_executor();
    listener one(*home, fake.d), other(*home, fake.d);
    one.then = [&] {
        one.stop();
        if (other.listening) other.stop();
    };
    for (int i = 0; i < 3; ++i) fake.async_event(fake.context, IBV_EVENT_PORT_ERR, 1);
    fake.d.drain_events();
    CHECK(one.all.size() == 1);
    CHECK(other.all.empty());
}

TEST_CASE("Reading events from within an event keeps the order") {
    world fake;
    const auto home = testing::make_executor();
    listener one(*home, fake.d);
    one.then = [&] {
        if (one.all.size() == 1) {
            fake.async_event(fake.context, IBV_EVENT_PORT_ACTIVE, 3);
            fake.d.drain_events();
        }
    };
    fake.async_event(fake.context, IBV_EVENT_PORT_ERR, 1);
    fake.async_event(fake.context, IBV_EVENT_PORT_ERR, 2);
    fake.d.drain_events();
    REQUIRE(one.all.size() == 3);
    for (std::uint8_t i = 0; i < 3; ++i) CHECK(one.all[i].port == i + 1);
}

TEST_CASE("Each observer hears on its own thread, whoever read the events") {
    world fake;
    std::latch added(3), done(1);
    std::atomic<int> heard_by_both{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&] {
            const auto home = testing::make_executor();
            listener one(*home, fake.d);
            one.then = [&] {
                if (one.all.size() == 50) home->stop();
            };
            added.arrive_and_wait();
            home->run();
            if (one.all.size() == 50 && one.wrong_thread == 0) ++heard_by_both;
            for (std::uint8_t i = 0; i < 50; ++i)
                if (one.all[i].port != i) heard_by_both = -100;
            done.wait();
        });
    const auto home = testing::make_executor();
    listener one(*home, fake.d);
    added.arrive_and_wait();
    for (std::uint8_t i = 0; i < 50; ++i) {
        fake.async_event(fake.context, IBV_EVENT_PORT_ERR, i);
        fake.d.drain_events();
    }
    CHECK(one.all.size() == 50);
    done.count_down();
    threads.clear();
    CHECK(heard_by_both == 2);
}

TEST_CASE("What others read for an observer is handed out before its executor gets to it") {
    world fake;
    const auto home = testing::make_executor();
    listener one(*home, fake.d);
    fake.async_event(fake.context, IBV_EVENT_PORT_ERR, 7);
    std::jthread([&] { fake.d.drain_events(); }).join(); // of no executor
    CHECK(one.all.empty());
    SECTION("when it looks itself") {
        fake.d.drain_events();
        CHECK(one.all == std::vector{heard{IBV_EVENT_PORT_ERR, 0, 7}});
        run_posts(*home);
        CHECK(one.all.size() == 1);
    }
    SECTION("by its executor") {
        run_posts(*home);
        CHECK(one.all.size() == 1);
    }
    SECTION("or not at all, when it left") {
        one.stop();
        run_posts(*home);
        CHECK(one.all.empty());
    }
}

TEST_CASE("Events of a queue pair say which; those of a queue go to its owner") {
    world fake;
    const auto home = testing::make_executor();
    listener one(*home, fake.d), other(*home, fake.d);
    const auto& v = rdma::api();
    ibv_comp_channel* const channel = v.create_comp_channel(fake.context);
    ibv_cq* const cq = v.create_cq(fake.context, 8, nullptr, channel, 0);
    ibv_srq_init_attr shared{nullptr, {4, 1, 0}};
    ibv_srq* const srq = v.create_srq(fake.d.pd(), &shared);
    rdma_event_channel* const events = v.create_event_channel();
    rdma_cm_id* id = nullptr;
    v.create_id(events, &id, nullptr, RDMA_PS_TCP);
    id->verbs = fake.context;
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.srq = srq;
    wanted.cap = {1, 0, 1, 0, 0};
    wanted.qp_type = IBV_QPT_RC;
    REQUIRE(v.create_qp(id, fake.d.pd(), &wanted) == 0);
    const std::uint32_t number = id->qp->qp_num;

    fake.async_event(id->qp, IBV_EVENT_QP_FATAL);
    one.mine = cq;
    fake.async_event(cq, IBV_EVENT_CQ_ERR);
    other.mine = srq;
    fake.async_event(srq, IBV_EVENT_SRQ_ERR);
    fake.d.drain_events();
    CHECK(one.all == std::vector{heard{IBV_EVENT_QP_FATAL, number, 0}, heard{IBV_EVENT_CQ_ERR, 0, 0}});
    CHECK(other.all == std::vector{heard{IBV_EVENT_QP_FATAL, number, 0}, heard{IBV_EVENT_SRQ_ERR, 0, 0}});

    v.destroy_qp(id); // would wait for events that are not acknowledged
    v.destroy_id(id);
    v.destroy_event_channel(events);
    v.destroy_srq(srq);
    v.destroy_cq(cq);
    v.destroy_comp_channel(channel);
}

TEST_CASE("A device that is gone says so once, and another may take its place") {
    world fake;
    const auto home = testing::make_executor();
    listener one(*home, fake.d);
    bool alive_when_told = true;
    one.then = [&] { alive_when_told = fake.d.is_alive(); };
    SECTION("by an event") { fake.async_event(fake.context, IBV_EVENT_DEVICE_FATAL); }
    SECTION("because it can't be read any more") {
        for (std::uint64_t nth = 1; nth <= 4; ++nth) fake.fail("get_async_event", nth, EIO);
    }
    fake.d.drain_events();
    fake.d.drain_events();
    CHECK(one.all == std::vector{heard{IBV_EVENT_DEVICE_FATAL, 0, 0}});
    CHECK_FALSE(alive_when_told);
    CHECK_FALSE(fake.d.is_alive());
    std::array<std::byte, 64> memory{};
    const auto refused = fake.d.register_private(memory.data(), memory.size());
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == std::errc::no_such_device);
    const auto next = device::of(fake.context);
    REQUIRE(next);
    CHECK(*next != &fake.d);
    CHECK((*next)->is_alive());
}
