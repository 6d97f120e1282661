// Hosts that know nothing of each other yet, not even the address of the link.
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>

namespace sluice::rdma::testing {

namespace {

using conformance::must;

constexpr int rounds = 10;

void forget_neighbours(const std::string& of) {
    command("rdma-guest-net on " + of + " ip neighbour flush dev net-" + of);
}

task<void> hears(connection& c) {
    VERIFY_EQUAL(must(co_await c.receive<std::uint32_t>()), 4711U);
    must(co_await c.closed());
}

task<void> says(connection& c) {
    must(co_await c.send(std::uint32_t{4711}));
    must(co_await c.close());
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
            address_of_device(there), [](runtime&, connection& c) { return hears(c); }, {}, there);
        auto connecting = our_end::connecting(
            listening->address(), [](runtime&, connection& c) { return says(c); }, {}, here);
        connecting->join();
        listening->join();
    }
    check_nothing_left();
}

} // namespace sluice::rdma::testing
