// Connections over links that lose packets: all bytes arrive, and arrive right.
#include "tests/rdma/exchange.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>

namespace sluice::rdma::testing {

namespace {

constexpr std::uint64_t drops_wanted = 10; // of each link

void report(const std::string& link, const shaped_link::packets& p) {
    std::printf("%s: %llu packets sent, %llu dropped\n", link.c_str(), static_cast<unsigned long long>(p.sent),
                static_cast<unsigned long long>(p.dropped));
}

} // namespace

TEST_CASE("Packet_loss.between_two_hosts_all_arrives_both_ways", "[two-hosts]") {
    const auto [here, there] = pair_of_devices(0);
    const shaped_link from_here(here, "loss 1%");
    const shaped_link from_there(there, "loss 1%");
    exchange_between(there, here, [&] {
        return from_here.count().dropped >= drops_wanted && from_there.count().dropped >= drops_wanted;
    });
    report(here, from_here.count());
    report(there, from_there.count());
    CHECK(from_here.count().dropped >= drops_wanted);
    CHECK(from_there.count().dropped >= drops_wanted);
}

TEST_CASE("Packet_loss.of_one_host_whose_device_sends_through_lo_all_arrives_both_ways") {
    needs_guest();
    const std::string device = bare::device_of(device_address());
    if (!device.starts_with("siw")) SKIP("what " << device << " sends to itself never enters the network");
    const shaped_link both("lo", "loss 1%");
    exchange_between(device, device, [&] { return both.count().dropped >= 2 * drops_wanted; });
    report("lo", both.count());
    CHECK(both.count().dropped >= 2 * drops_wanted);
}

} // namespace sluice::rdma::testing
