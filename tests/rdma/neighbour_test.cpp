// Hosts that know nothing of each other yet, not even the address of the link.
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>

namespace sluice::rdma::testing {

namespace {

constexpr int rounds = 10;

void forget_neighbours(const std::string& of) {
    command("rdma-guest-net on " + of + " ip neighbour flush dev net-" + of);
}

} // namespace

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
