// Hosts that know nothing of each other yet, not even the address of the link; and one that never says anything.
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

namespace sluice::rdma::testing {

namespace {

using namespace std::chrono_literals;

constexpr int rounds = 10;

void forget_neighbours(const std::string& of) {
    command("rdma-guest-net on " + of + " ip neighbour flush dev net-" + of);
}

/// A host in the network of a device whose link address is known, so that packets leave for it, and which is not there.
class silent_host {
public:
    explicit silent_host(const std::string& device) : device_(device), address_(address_of_device(device)) {
        const std::size_t scheme = std::string("rdma://").size();
        address_ = address_.substr(scheme, address_.rfind('.') - scheme) + ".77";
        command("rdma-guest-net on " + device_ + " ip neighbour replace " + address_ +
                " lladdr 02:00:00:00:00:77 nud permanent dev net-" + device_);
    }
    ~silent_host() {
        try {
            command("rdma-guest-net on " + device_ + " ip neighbour del " + address_ + " dev net-" + device_);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s\n", e.what());
        }
    }
    silent_host(const silent_host&) = delete;
    silent_host& operator=(const silent_host&) = delete;
    std::string url() const { return "rdma://" + address_ + ":4711"; }

private:
    std::string device_;
    std::string address_;
};

task<void> connects_in_vain(runtime& rt, const std::string& to) {
    const auto made = co_await rt.connect(to, {.connect_timeout = 5s}); // of which setting up takes 1 s in the guest
    conformance::must_name(conformance::must_fail(made, errc::deadline_exceeded),
                           "not done within 5000 ms (connection_options.connect_timeout); waited for its answer to the "
                           "connection request from rdma://");
}

} // namespace

// The kernel's TCP beneath soft-iWARP tries for two minutes, in the call that connects.
TEST_CASE("Neighbour.one_that_never_answers_costs_the_time_that_was_given") {
    const std::string device = untouched_device();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    const silent_host nobody(device);
    our_end::running([to = nobody.url()](runtime& rt) { return connects_in_vain(rt, to); })->join();
    check_nothing_left();
}

// The kernel may miss the neighbour's answer: rdma/route.cpp. Then a connection came to nothing.
TEST_CASE("Neighbour.one_that_is_not_known_yet_is_found_every_time", "[two-hosts]") {
    const auto [here, there] = pair_of_devices(2);
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    for (int i = 0; i < rounds; ++i) {
        forget_neighbours(here);
        forget_neighbours(there);
        auto listening = our_end::listening(
            address_of_device(there), [](runtime&, connection& c) { return hears_a_word(c); }, {}, there);
        auto connecting = our_end::connecting(
            listening->address(), [](runtime&, connection& c) { return says_a_word(c); }, {}, here);
        connecting->join();
        listening->join();
    }
    check_nothing_left();
}

} // namespace sluice::rdma::testing
