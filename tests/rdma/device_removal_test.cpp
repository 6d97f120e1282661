// A device is deleted under its connections. In a process of its own: Linux 6.12 deletes a soft device only when the last
// program has closed it, and librdmacm keeps it open.
#include "tests/conformance/process.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/busy_end.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>
#include <cstdio>

namespace sluice::rdma::testing {

namespace {

using conformance::child_process;
using conformance::must;
using clock = std::chrono::steady_clock;

struct removal : interruption {
    std::array<std::string, 2> why{};
};

task<void> loses_its_device(connection& c, removal& r, std::size_t self) {
    r.why[self] = (co_await is_busy_until_cut_off(c, r, self)).message();
}

struct ends {
    std::string server;
    std::string client;
};

void must_have_nothing() {
    const live_objects left = count_live();
    if (!(left == live_objects{})) throw bare::failure("left: " + left.to_string());
}

void lose(const ends& with, const child_process::channel& test) {
    removal r;
    {
        auto listening = our_end::listening(
            address_of_device(with.server), [&](runtime&, connection& c) { return loses_its_device(c, r, 0); }, {},
            with.server);
        auto connecting = our_end::connecting(
            listening->address(), [&](runtime&, connection& c) { return loses_its_device(c, r, 1); }, {}, with.client);
        wait_until_busy(r, *listening, *connecting);
        test.say("busy");
        connecting->join();
        listening->join();
    }
    for (std::size_t i = 0; i < r.over.size(); ++i) {
        test.say(r.why[i]);
        test.say(std::to_string(r.over[i].time_since_epoch().count()));
    }
    must_have_nothing();
}

void go_on(const ends& with) {
    {
        auto listening = our_end::listening(
            address_of_device(with.server), [](runtime&, connection& c) { return hears_a_word(c); }, {}, with.server);
        auto connecting = our_end::connecting(
            listening->address(), [](runtime&, connection& c) { return says_a_word(c); }, {}, with.client);
        connecting->join();
        listening->join();
    }
    must_have_nothing();
}

void in_the_child(const ends& removed, const ends& others, const child_process::channel& test) {
    try {
        lose(removed, test);
        go_on(others);
        test.say("went on");
    } catch (const std::exception& e) {
        test.say(std::string("failed: ") + e.what());
    }
    test.hear(); // the test lets it go
}

/// The server's device is the one that goes.
void remove_under(const ends& removed, const ends& others) {
    child_process child([&](const child_process::channel& test) { in_the_child(removed, others, test); });
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    REQUIRE(child.pipes().hear() == "busy");
    deleted_device gone(removed.server);
    const auto start = clock::now();
    gone.begin();
    bool named = false;
    for (const std::string& device : {removed.server, removed.client}) {
        const std::string why = child.pipes().hear();
        INFO(why);
        REQUIRE_FALSE(why.starts_with("failed"));
        // Where it is the device of both, the end that goes first may be to the other a peer that is gone.
        named = named || (device == removed.server && why.find("device " + device) != std::string::npos);
        const clock::time_point over{clock::duration(std::stoll(child.pipes().hear()))};
        const auto took = std::chrono::duration_cast<std::chrono::microseconds>(over - start);
        std::printf("%s: the connection had ended %lld us after the deletion of %s was asked for: %s\n", device.c_str(),
                    static_cast<long long>(took.count()), removed.server.c_str(), why.c_str());
    }
    CHECK(named);
    REQUIRE(child.pipes().hear() == "went on");
    std::printf("%s was %s while the program went on\n", removed.server.c_str(), gone.is_over() ? "gone" : "still held");
    child.pipes().say("end");
    CHECK(child.pipes().hear().empty()); // it has ended by itself
    gone.wait();
}

} // namespace

TEST_CASE("Device_removal.of_one_host_ends_its_connection_and_its_peers_and_others_work", "[two-hosts]") {
    const auto [here, there] = pair_of_devices(0);
    const auto [other_here, other_there] = pair_of_devices(2);
    remove_under({.server = there, .client = here}, {.server = other_there, .client = other_here});
}

TEST_CASE("Device_removal.of_both_ends_ends_the_connection_and_other_devices_work") {
    const std::string device = untouched_device();
    const std::string other = other_device(device);
    remove_under({.server = device, .client = device}, {.server = other, .client = other});
}

} // namespace sluice::rdma::testing
