#pragma once

#include <sluice/executor.hpp>
#include <sluice/operation.hpp>
#include <sluice/sync_wait.hpp>

#include "rdma/device.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/rail.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tests/support/run.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <span>
#include <vector>

namespace sluice::testing {

/// Keeps all that it is told, and does what the test says meanwhile.
struct recorder final : rdma::queue_pair_user {
    struct ended {
        std::uintptr_t owner;
        rdma::completion how;
    };
    std::vector<ended> done;
    std::vector<std::vector<std::byte>> frames;
    std::vector<ibv_event_type> events;
    int rooms = 0;
    std::function<void()> when_done, when_frame, when_room, when_event;

    void on_work_done(const rdma::work& w, const rdma::completion& how) noexcept override {
        done.push_back({reinterpret_cast<std::uintptr_t>(w.owner), how});
        if (when_done) when_done();
    }
    void on_frame(std::span<const std::byte> bytes) noexcept override {
        frames.emplace_back(bytes.begin(), bytes.end());
        if (when_frame) when_frame();
    }
    void on_room() noexcept override {
        ++rooms;
        if (when_room) when_room();
    }
    void on_queue_pair_event(ibv_event_type what) noexcept override {
        events.push_back(what);
        if (when_event) when_event();
    }
    std::size_t count(ibv_wc_status status) const {
        std::size_t n = 0;
        for (const ended& each : done) n += each.how.status == status ? 1 : 0;
        return n;
    }
};

/// Through the ring and back, and so through the loop of the executor.
inline task<void> round_trips() {
    for (int i = 0; i < 4; ++i) static_cast<void>(co_await nop());
}

/// A rail on a fake device, and what a test needs to make queue pairs on it.
struct rail_world {
    explicit rail_world(const fake_device_options& options = {}) : context(fake.add_device(options)) {
        fcntl(events->fd, F_SETFL, fcntl(events->fd, F_GETFL) | O_NONBLOCK);
        auto opened = rdma::device::of(context);
        REQUIRE(opened);
        on = *opened;
    }
    ~rail_world() {
        turn(); // what left on other threads goes
        home.reset();
        rdma::device::close_all();
        rdma::api().destroy_event_channel(events);
    }
    rail_world(const rail_world&) = delete;
    rail_world& operator=(const rail_world&) = delete;

    std::shared_ptr<rdma::rail> make_rail() {
        auto made = sync_wait(*home, rdma::rail::of(*on));
        if (!made) FAIL(made.error().message());
        return *made;
    }
    /// An id that has the device.
    rdma_cm_id* make_id() {
        rdma_cm_id* id = nullptr;
        REQUIRE(rdma::api().create_id(events, &id, nullptr, RDMA_PS_TCP) == 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(7471);
        REQUIRE(rdma::api().resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 0) == 0);
        rdma_cm_event* event = nullptr;
        REQUIRE(rdma::api().get_cm_event(events, &event) == 0);
        rdma::api().ack_cm_event(event);
        return id;
    }
    /// Lets the executor look at everything, several times.
    void turn() { sync_wait(*home, round_trips()); }

    fake_verbs fake;
    ibv_context* context;
    std::unique_ptr<executor> home = make_executor();
    rdma_event_channel* events = rdma::api().create_event_channel();
    rdma::device* on = nullptr;
};

/// A queue pair with its id and its user.
struct test_pair {
    test_pair(rail_world& in, std::shared_ptr<rdma::rail> rail, const rdma::queue_pair_options& options = {},
              bool with_user = true)
        : world(in), id(in.make_id()) {
        const auto witness = rail->witness();
        auto made = rdma::queue_pair::create(std::move(rail), id, options);
        if (!made) FAIL(made.error().message());
        qp = std::move(*made);
        raw = id->qp;
        if (witness) qp->set_witness(*witness); // its own, for all peers are on this rail
        world.fake.set_state(raw, IBV_QPS_RTS);
        if (with_user) qp->set_user(&user);
    }
    ~test_pair() {
        if (qp != nullptr) {
            qp->drain_now(std::chrono::seconds(2));
            qp.reset();
        }
        rdma::api().destroy_id(id);
    }
    test_pair(const test_pair&) = delete;
    test_pair& operator=(const test_pair&) = delete;

    /// A write of a few bytes that bears this number.
    rdma::work write(std::uintptr_t owner, std::uint32_t bytes = 8) {
        rdma::work w;
        w.what = rdma::work::kind::write;
        w.owner = reinterpret_cast<void*>(owner);
        w.data = memory.data();
        w.bytes = bytes;
        return w;
    }
    rdma::work read(std::uintptr_t owner, std::uint32_t bytes = 8) {
        rdma::work w = write(owner, bytes);
        w.what = rdma::work::kind::read;
        return w;
    }
    rdma::work frame(std::uintptr_t owner, std::uint16_t payload_bytes = 0) {
        rdma::work w;
        w.what = rdma::work::kind::frame;
        w.owner = reinterpret_cast<void*>(owner);
        w.data = memory.data();
        w.bytes = payload_bytes;
        w.header.type = payload_bytes == 0 ? rdma::frame_type::credit : rdma::frame_type::message;
        w.header.payload_bytes = payload_bytes;
        w.header.slots = static_cast<std::uint16_t>(owner);
        return w;
    }

    rail_world& world;
    rdma_cm_id* id;
    recorder user;
    std::unique_ptr<rdma::queue_pair> qp;
    ibv_qp* raw = nullptr;
    std::array<std::byte, 256> memory{};
};

} // namespace sluice::testing
