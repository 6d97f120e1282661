// Our connections on a real device, where the conformance suite does not look: how many, how slow, how not, and what
// the device was told.
#include "tests/conformance/buffer.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>
#include <cstdio>
#include <latch>
#include <thread>
#include <vector>

namespace sluice::rdma::testing {

namespace {

using namespace std::chrono_literals;
using conformance::buffer;
using conformance::must;
using conformance::must_fail;
using conformance::must_name;

/// Two ends of ours, a runtime each.
void both_ours(const our_part& client, const our_part& server, const connection_options& options = {}) {
    const std::string on = device_address();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    {
        auto listening = our_end::listening(on, server, options);
        auto connecting = our_end::connecting(listening->address(), client, options);
        connecting->join();
        listening->join();
    }
    check_nothing_left();
}

// ---- many operations ----

constexpr std::uint64_t operations = 10'000;
constexpr std::size_t word_bytes = sizeof(std::uint64_t);

task<void> write_word(connection& c, remote_view there, region_view here) { must(co_await c.write(there, here)); }

task<void> writes_all_at_once(runtime&, connection& c) {
    const remote_region there = must(co_await c.receive<remote_region>());
    buffer b(operations * word_bytes);
    conformance::fill(b.bytes(), 1);
    scope writing;
    for (std::uint64_t i = 0; i < operations; ++i)
        writing.spawn(write_word(c, there.subview(i * word_bytes, word_bytes), b.subview(i * word_bytes, word_bytes)));
    must(co_await writing.join());
    VERIFY_EQUAL(c.stats().write.operations, operations);
    VERIFY_EQUAL(c.stats().write.bytes(path::rdma), operations * word_bytes);
    must(co_await c.send(std::uint32_t{1}));
    must(co_await c.close());
}

task<void> is_written_to(runtime&, connection& c) {
    buffer b(operations * word_bytes);
    auto shared = must(co_await c.share(b, access::remote_write));
    must(co_await c.send(shared.description()));
    must(co_await c.receive<std::uint32_t>());
    conformance::must_hold(b.bytes(), 1);
    must(co_await c.closed());
}

} // namespace

TEST_CASE("Device.ten_thousand_awaits_go_through_a_small_send_queue") {
    connection_options options;
    options.operations_in_flight = 65'536; // so that the send queue is what holds them up
    both_ours(writes_all_at_once, is_written_to, options);
}

// ---- a slow receiver ----

namespace {

constexpr int slow_messages = 300;
constexpr std::uint64_t writes_per_message = 5;

/// The sender's other operations: writes, of which the receiver's program sees nothing. They set the pace: the receiver
/// takes a message only after so many more of them, so it is slow whatever the machine is.
struct pace {
    std::atomic<std::uint64_t> writes{0};
    std::atomic<bool> all_sent{false};
    std::vector<std::chrono::nanoseconds> took; // each write, of the sender's thread
};

task<void> writes_meanwhile(connection& c, remote_view there, region_view here, pace& p) {
    while (!p.all_sent.load()) {
        const auto start = std::chrono::steady_clock::now();
        must(co_await c.write(there, here));
        p.took.push_back(std::chrono::steady_clock::now() - start);
        p.writes.fetch_add(1);
    }
}

task<void> sends_as_fast_as_it_can(connection& c, pace& p) {
    buffer b(512);
    for (int i = 0; i < slow_messages; ++i) {
        conformance::fill(b.bytes(), static_cast<std::uint64_t>(i));
        must(co_await c.send(b));
    }
    must(co_await c.receive<std::uint32_t>()); // it has taken the last
    p.all_sent = true;
}

task<void> sends_and_writes(connection& c, pace& p) {
    const remote_region there = must(co_await c.receive<remote_region>());
    buffer b(64);
    scope all;
    all.spawn(sends_as_fast_as_it_can(c, p));
    all.spawn(writes_meanwhile(c, there, b, p));
    must(co_await all.join());
    must(co_await c.close());
}

task<void> takes_its_time(connection& c, pace& p) {
    buffer b(512);
    buffer target(64);
    auto shared = must(co_await c.share(target, access::remote_write));
    must(co_await c.send(shared.description()));
    for (int i = 0; i < slow_messages; ++i) {
        const std::uint64_t enough = p.writes.load() + writes_per_message;
        // Mostly the executor is left to others, at times the program holds its thread up.
        while (i % 16 == 0 && p.writes.load() < enough) std::this_thread::yield();
        while (p.writes.load() < enough) co_await yield();
        must(co_await c.receive(b));
        conformance::must_hold(b.bytes(), static_cast<std::uint64_t>(i));
    }
    must(co_await c.send(std::uint32_t{1}));
    must(co_await c.closed());
}

std::chrono::microseconds at_share(std::vector<std::chrono::nanoseconds> times, double share) {
    const auto place = static_cast<std::ptrdiff_t>(static_cast<double>(times.size() - 1) * share);
    std::ranges::nth_element(times, times.begin() + place);
    return std::chrono::duration_cast<std::chrono::microseconds>(times[static_cast<std::size_t>(place)]);
}

} // namespace

TEST_CASE("Device.a_slow_receiver_holds_messages_up_and_nothing_else_and_is_never_not_ready") {
    const std::string device = bare::device_of(device_address());
    // Where the device counts it: iWARP has no such thing, TCP beneath it holds the sender up.
    const auto sent_before = bare::hardware_counter(device, "send_rnr_err");
    const auto seen_before = bare::hardware_counter(device, "rcvd_rnr_err");
    pace p;
    both_ours([&](runtime&, connection& c) { return sends_and_writes(c, p); },
              [&](runtime&, connection& c) { return takes_its_time(c, p); });
    CHECK(bare::hardware_counter(device, "send_rnr_err") == sent_before);
    CHECK(bare::hardware_counter(device, "rcvd_rnr_err") == seen_before);
    // Each message but the last waited for some, so the writes did not wait for messages.
    REQUIRE(p.took.size() >= slow_messages * writes_per_message);
    const auto p99 = at_share(p.took, 0.99);
    std::printf("%s: %zu writes while the receiver was slow: p50 %lld us, p99 %lld us, longest %lld us\n", device.c_str(),
                p.took.size(), static_cast<long long>(at_share(p.took, 0.5).count()),
                static_cast<long long>(p99.count()), static_cast<long long>(at_share(p.took, 1.0).count()));
    CHECK(p99 < 60s);
}

// ---- many connections ----

namespace {

constexpr int connections = 500;

task<void> takes_many(runtime& rt, std::string on, std::promise<std::string>& where) {
    auto listener = must(co_await rt.listen(on));
    where.set_value(listener.address().to_string());
    for (int i = 0; i < connections; ++i) {
        connection c = must(co_await listener.accept());
        must(co_await c.closed());
    }
    VERIFY_EQUAL(listener.rejected(), 0U);
}

task<void> makes_many(runtime& rt, std::string to) {
    for (int i = 0; i < connections; ++i) {
        connection c = must(co_await rt.connect(to));
        must(co_await c.send(i));
        must(co_await c.close());
    }
}

} // namespace

TEST_CASE("Device.five_hundred_connections_one_after_another_leave_nothing") {
    const std::string on = device_address();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    {
        std::promise<std::string> where;
        auto listening = our_end::running([&](runtime& rt) { return takes_many(rt, on, where); });
        const std::string to = where.get_future().get();
        auto connecting = our_end::running([&](runtime& rt) { return makes_many(rt, to); });
        connecting->join();
        listening->join();
        const live_objects left = count_live();
        INFO("left: " << left.to_string());
        CHECK(left.queue_pairs == 0);
        CHECK(left.ids == 0);
        CHECK(left.event_channels == 0);
    }
    check_nothing_left();
}

// ---- connections that can't be ----

namespace {

task<void> is_refused(runtime& rt, std::string to) {
    const error why = must_fail(co_await rt.connect(to), std::errc::connection_refused);
    must_name(why, to);
}

task<void> is_unreachable(runtime& rt, std::string to) {
    const error why = must_fail(co_await rt.connect(to, {.connect_timeout = 5s}), std::errc::host_unreachable);
    must_name(why, to);
}

} // namespace

TEST_CASE("Device.a_closed_port_refuses_at_once_and_by_name") {
    const std::string on = device_address();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    std::string closed;
    {
        const bare::acceptor had_it(on);
        closed = had_it.address();
    }
    our_end::running([&](runtime& rt) { return is_refused(rt, closed); })->join();
    check_nothing_left();
}

TEST_CASE("Device.an_address_that_no_device_leads_to_is_unreachable_by_name") {
    static_cast<void>(device_address());
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    // For documentation only [RFC 5737].
    our_end::running([](runtime& rt) { return is_unreachable(rt, "rdma://192.0.2.1:7471"); })->join();
    check_nothing_left();
}

// ---- what the device was told ----

namespace {

/// Both ends are up and stay so until the test has looked.
struct look {
    std::latch up{2};
    std::latch seen{1};
};

task<void> stays_up(connection& c, look& l, bool closes) {
    if (closes) must(co_await c.send(std::uint32_t{1}));
    else must(co_await c.receive<std::uint32_t>());
    l.up.count_down();
    while (!l.seen.try_wait()) co_await yield();
    if (closes) must(co_await c.close());
    else must(co_await c.closed());
}

void check_attributes(ibv_qp* qp) {
    ibv_qp_attr is{};
    ibv_qp_init_attr made{};
    REQUIRE(ibv_query_qp(qp, &is,
                         IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC,
                         &made) == 0);
    CHECK(is.qp_state == IBV_QPS_RTS);
    CHECK(is.min_rnr_timer == 12); // 0.64 ms; the connection manager's own is 655 ms [rdma_connect(3)]
    CHECK(is.retry_cnt == 7);
    CHECK(is.rnr_retry == 7);
    CHECK(is.timeout >= 8); // 1 ms..1 s, so that 8 tries are over within peer_timeout
    CHECK(is.timeout <= 18);
    CHECK(is.max_rd_atomic >= 1);
    CHECK(is.max_dest_rd_atomic >= 1);
    CHECK(made.qp_type == IBV_QPT_RC);
    CHECK(made.srq != nullptr);
    CHECK(made.cap.max_inline_data >= 64);
}

} // namespace

TEST_CASE("Device.an_established_queue_pair_has_the_timers_and_retries_that_were_meant") {
    look l;
    const std::string on = device_address();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    {
        auto listening = our_end::listening(on, [&](runtime&, connection& c) { return stays_up(c, l, false); }, {});
        auto connecting = our_end::connecting(listening->address(),
                                              [&](runtime&, connection& c) { return stays_up(c, l, true); }, {});
        l.up.wait();
        const auto pairs = live_queue_pairs();
        CHECK(pairs.size() == 2);
        for (ibv_qp* qp : pairs)
            if (qp->context->device->transport_type == IBV_TRANSPORT_IB) check_attributes(qp);
        l.seen.count_down();
        connecting->join();
        listening->join();
    }
    check_nothing_left();
}

// ---- chosen devices ----

namespace {

task<void> connects_by_it(runtime& rt, std::string on) {
    auto listening = must(co_await rt.listen(on));
    auto here = must(co_await rt.connect(listening.address()));
    auto there = must(co_await listening.accept());
    VERIFY_EQUAL(there.peer_address(), here.local_address());
    scope both;
    both.spawn([](connection& c) -> task<void> { must(co_await c.closed()); }(there));
    must(co_await here.close());
    must(co_await both.join());
}

task<void> is_kept_from_it(runtime& rt, std::string on, std::string device) {
    const auto refused = co_await rt.listen(on);
    VERIFY(!refused);
    must_name(refused.error(), device);
}

} // namespace

TEST_CASE("Device.connections_leave_and_come_by_the_chosen_devices_only") {
    const std::string on = device_address();
    const std::string device = bare::device_of(on);
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    for (const std::string& chosen : {device, device + ":1", "!nothing-else," + device}) {
        CAPTURE(chosen);
        auto rt = must(runtime::create({.pool_bytes = std::size_t{4} << 20, .rdma_devices = chosen, .pin = false}));
        rt.sync_wait(connects_by_it(rt, on));
    }
    {
        auto rt = must(runtime::create({.pool_bytes = std::size_t{4} << 20, .rdma_devices = "!" + device, .pin = false}));
        rt.sync_wait(is_kept_from_it(rt, on, device));
    }
    check_nothing_left();
}

namespace {

task<void> tells_where_the_peer_is(connection& c, std::string& peer) {
    peer = c.peer_address();
    must(co_await c.send(std::uint32_t{4711}));
    must(co_await c.closed());
}

task<void> tells_where_it_is(runtime& rt, std::string to, std::string& self) {
    connection c = must(co_await rt.connect(to));
    self = c.local_address();
    VERIFY_EQUAL(must(co_await c.receive<std::uint32_t>()), 4711U);
    must(co_await c.close());
}

} // namespace

TEST_CASE("Device.a_connection_leaves_by_the_chosen_device_though_the_kernels_route_is_another_one") {
    const std::string on = device_address();
    const std::string device = bare::device_of(on);
    if (!device.starts_with("siw")) SKIP(device << " does not reach other devices of its host");
    const std::string other = other_device(device);
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    std::string self;
    std::string peer;
    {
        auto listening = our_end::listening(on, [&](runtime&, connection& c) { return tells_where_the_peer_is(c, peer); }, {});
        auto rt = must(runtime::create({.pool_bytes = std::size_t{4} << 20, .rdma_devices = other, .pin = false}));
        rt.sync_wait(tells_where_it_is(rt, listening->address(), self));
        listening->join();
    }
    const std::string wanted = address_of_device(other);
    CHECK(self.starts_with(wanted.substr(0, wanted.rfind(':') + 1)));
    CHECK(peer == self);
    check_nothing_left();
}

} // namespace sluice::rdma::testing
