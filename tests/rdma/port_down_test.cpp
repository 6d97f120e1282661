// The link goes down under a connection, and up again.
#include "tests/conformance/verify.hpp"
#include "tests/rdma/busy_end.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/sleep.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>
#include <cstdio>

namespace sluice::rdma::testing {

namespace {

using namespace std::chrono_literals;
using conformance::must;
using conformance::must_fail;
using clock = std::chrono::steady_clock;

task<void> is_cut_off(connection& c, interruption& by, std::size_t self) {
    const error cause = co_await is_busy_until_cut_off(c, by, self);
    VERIFY(cause == errc::peer_lost);
    conformance::must_name(cause, "went down");
}

/// Its own addresses a host reaches even then, without its device: nobody listens there any more.
task<void> finds_no_way(runtime& rt, std::string to) {
    const auto made = co_await rt.connect(to, {.connect_timeout = 5s});
    if (!made && made.error() == std::errc::connection_refused) co_return;
    must_fail(made, std::errc::host_unreachable);
}

/// The addresses of a port that has just come up may take a while.
task<void> serves_once_up(runtime& rt, std::string on, std::string host, std::promise<std::string>& where) {
    enter_host_of(host);
    for (;;) {
        auto listener = co_await rt.listen(on);
        if (!listener) {
            must(co_await sleep_for(5ms));
            continue;
        }
        where.set_value(listener->address().to_string());
        connection c = must(co_await listener->accept());
        VERIFY_EQUAL(must(co_await c.receive<std::uint32_t>()), 4711U);
        must(co_await c.closed());
        co_return;
    }
}

task<void> connects_once_up(runtime& rt, std::string to, std::string host) {
    enter_host_of(host);
    for (;;) {
        auto c = co_await rt.connect(to);
        if (!c) {
            VERIFY(c.error() == std::errc::host_unreachable || c.error() == std::errc::connection_refused);
            must(co_await sleep_for(5ms));
            continue;
        }
        must(co_await c->send(std::uint32_t{4711}));
        must(co_await c->close());
        co_return;
    }
}

void connect_anew(const std::string& here, const std::string& there) {
    std::promise<std::string> where;
    auto listening = our_end::running(
        [&](runtime& rt) { return serves_once_up(rt, address_of_device(there), there, where); });
    const std::string to = where.get_future().get();
    our_end::running([&](runtime& rt) { return connects_once_up(rt, to, here); })->join();
    listening->join();
}

/// `here` is the device whose link goes down.
void cut_between(const std::string& here, const std::string& there, bool recovers) {
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    const cut_link link(here);
    interruption t;
    clock::time_point start;
    std::string to;
    {
        auto listening = our_end::listening(
            address_of_device(there), [&](runtime&, connection& c) { return is_cut_off(c, t, 0); }, {}, there);
        to = listening->address();
        auto connecting = our_end::connecting(
            to, [&](runtime&, connection& c) { return is_cut_off(c, t, 1); }, {}, here);
        wait_until_busy(t, *listening, *connecting);
        REQUIRE(link.port_state() == "ACTIVE");
        start = clock::now();
        link.down();
        connecting->join();
        listening->join();
    }
    CHECK(link.port_state() == "DOWN");
    check_nothing_left();
    for (std::size_t i = 0; i < t.over.size(); ++i) {
        const auto took = std::chrono::duration_cast<std::chrono::microseconds>(t.over[i] - start);
        std::printf("%s: the connection had ended %lld us after the link began to go down\n",
                    i == 0 ? there.c_str() : here.c_str(), static_cast<long long>(took.count()));
        CHECK(took < 10s); // by the event, and not by the peer's silence, which takes 20 s
    }
    our_end::running([&](runtime& rt) { return finds_no_way(rt, to); })->join();
    check_nothing_left();
    link.up();
    if (!recovers) return;
    connect_anew(here, there);
    check_nothing_left();
}

} // namespace

// Soft-RoCE does not recover (Linux 6.12 and 7.3): a message of the connection manager that meets a link which is down
// moves the device's queue pair 1 to error, for good [rdma resource show qp]. So this takes a pair that no other test does.
TEST_CASE("Port_down.both_hosts_of_a_connection_hear_of_it", "[two-hosts]") {
    const auto [here, there] = pair_of_devices(1);
    cut_between(here, there, false);
}

TEST_CASE("Port_down.a_device_connected_with_itself_hears_of_it_and_a_new_connection_works_later") {
    const std::string device = untouched_device();
    if (!device.starts_with("siw")) SKIP("the kernel's " << device << " would not recover");
    cut_between(device, device, true);
}

} // namespace sluice::rdma::testing
