// rping [rping(1)] and our connections: each refuses the other, quickly and by name, for it speaks another protocol.
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/sleep.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>

namespace sluice::rdma::testing {

namespace {

using namespace std::chrono_literals;
using conformance::must;
using conformance::must_fail;
using conformance::must_name;

constexpr int port_of_rping = 7174;

void needs_rping() {
    if (running_command("command -v rping").wait().status != 0) SKIP("there is no rping here (package rdmacm-utils)");
}

/// "10.9.1.1" of "rdma://10.9.1.1:0"
std::string host_of(const std::string& address) {
    const auto start = std::string("rdma://").size();
    return address.substr(start, address.rfind(':') - start);
}

task<void> refuses_one(runtime& rt, std::string on, std::promise<std::string>& where) {
    auto listener = must(co_await rt.listen(on));
    where.set_value(listener.address().to_string());
    while (listener.rejected() == 0) co_await yield();
}

/// Until rping listens, nobody does.
task<void> finds_a_stranger(runtime& rt, std::string to) {
    for (;;) {
        const auto start = std::chrono::steady_clock::now();
        const auto made = co_await rt.connect(to);
        if (!made && made.error() == std::errc::connection_refused) {
            co_await yield();
            continue;
        }
        const error why = must_fail(made, errc::protocol_error);
        must_name(why, "does not speak sluice's protocol");
        must_name(why, to);
        VERIFY(std::chrono::steady_clock::now() - start < 10s); // which is connect_timeout
        co_return;
    }
}

} // namespace

TEST_CASE("Rping.as_client_is_refused_by_our_listener") {
    const std::string on = device_address();
    needs_rping();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    std::promise<std::string> where;
    auto listening = our_end::running([&](runtime& rt) { return refuses_one(rt, on, where); });
    const std::string at = where.get_future().get();
    running_command rping("timeout 60 rping -c -v -C 1 -a " + host_of(at) + " -p " + at.substr(at.rfind(':') + 1));
    listening->join();
    const auto ended = rping.wait();
    INFO(ended.said);
    CHECK(ended.said.find("RDMA_CM_EVENT_REJECTED") != std::string::npos);
    CHECK(ended.said.find("ping data") == std::string::npos);
    CHECK(ended.status != 124); // timeout(1)
    check_nothing_left();
}

TEST_CASE("Rping.as_server_is_a_protocol_error_of_our_connect") {
    const std::string on = device_address();
    needs_rping();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    const std::string to = "rdma://" + host_of(on) + ":" + std::to_string(port_of_rping);
    running_command rping("timeout 60 rping -s -v -C 1 -a " + host_of(on) + " -p " + std::to_string(port_of_rping));
    our_end::running([&](runtime& rt) { return finds_a_stranger(rt, to); })->join();
    check_nothing_left();
    const auto ended = rping.wait();
    INFO(ended.said);
    CHECK(ended.said.find("ping data") == std::string::npos);
    CHECK(ended.status != 124); // timeout(1)
}

} // namespace sluice::rdma::testing
