// The address of both ends is taken from its netdev, and with it, but for iWARP, a GID from the port's table.
#include "tests/conformance/verify.hpp"
#include "tests/rdma/busy_end.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/sleep.hpp>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>
#include <cstdio>
#include <latch>
#include <string>
#include <utility>

namespace sluice::rdma::testing {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using conformance::must;

constexpr const char* passing = "10.9.77.1";

/// An address beside those that a device has.
class extra_address {
public:
    explicit extra_address(std::string device) : device_(std::move(device)) { change("add"); }
    ~extra_address() {
        try {
            remove();
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s\n", e.what());
        }
    }
    extra_address(const extra_address&) = delete;
    extra_address& operator=(const extra_address&) = delete;
    void remove() {
        if (std::exchange(there_, false)) change("del");
    }

private:
    void change(const char* how) const {
        command("rdma-guest-net on " + device_ + " ip address " + how + " " + passing + "/24 dev net-" + device_);
    }
    std::string device_;
    bool there_ = true;
};

struct removal : interruption {
    std::array<std::string, 2> why{};
};

task<void> loses_its_address(connection& c, removal& by, std::size_t self) {
    by.why[self] = (co_await is_busy_until_cut_off(c, by, self)).message();
}

task<void> says_a_word_later(connection& c, const std::latch& later) {
    while (!later.try_wait()) must(co_await sleep_for(5ms));
    co_await says_a_word(c);
}

/// Opens a latch, at the latest when it goes.
class opener {
public:
    explicit opener(std::latch& of) : of_(of) {}
    ~opener() { open(); }
    opener(const opener&) = delete;
    opener& operator=(const opener&) = delete;
    void open() {
        if (!of_.try_wait()) of_.count_down();
    }

private:
    std::latch& of_;
};

} // namespace

TEST_CASE("Gid_change.an_address_that_is_removed_ends_its_connections_and_no_others") {
    const std::string device = untouched_device();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    extra_address address(device);
    removal of_passing;
    std::latch removed{1};
    {
        auto other_there = our_end::listening(
            address_of_device(device), [](runtime&, connection& c) { return hears_a_word(c); }, {});
        auto other_here = our_end::connecting(
            other_there->address(), [&](runtime&, connection& c) { return says_a_word_later(c, removed); }, {});
        opener lets_it_speak(removed);
        const std::string on = std::string("rdma://") + passing + ":0";
        auto listening = our_end::listening(on, [&](runtime&, connection& c) { return loses_its_address(c, of_passing, 0); }, {});
        auto connecting = our_end::connecting(
            listening->address(), [&](runtime&, connection& c) { return loses_its_address(c, of_passing, 1); }, {});
        wait_until_busy(of_passing, *listening, *connecting);
        const auto start = clock::now();
        address.remove();
        lets_it_speak.open();
        connecting->join();
        listening->join();
        other_here->join();
        other_there->join();
        for (std::size_t i = 0; i < of_passing.over.size(); ++i) {
            const auto took = std::chrono::duration_cast<std::chrono::microseconds>(of_passing.over[i] - start);
            std::printf("%s: the connection had ended %lld us after the removal of %s was asked for: %s\n", device.c_str(),
                        static_cast<long long>(took.count()), passing, of_passing.why[i].c_str());
            // By the event or what the device does, or over iWARP when this end begins to doubt a silent peer; and not
            // by silence alone, which takes 20 s.
            CHECK(took < 15s);
            // It is the address of both ends, so that neither may take the other for the culprit.
            CHECK(of_passing.why[i].find(std::string("the address of this end, rdma://") + passing) == 0);
        }
    }
    check_nothing_left();
}

} // namespace sluice::rdma::testing
