// Two hosts whose ports carry packets of different sizes: what is larger than the smaller of them would be lost.
#include "tests/rdma/bare_cm.hpp"
#include "tests/rdma/exchange.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <catch2/catch_test_macros.hpp>

namespace sluice::rdma::testing {

namespace {

constexpr std::size_t mixed_pair = 2; // 4200 bytes on host 1, 1500 on host 2: docs/rdma-guest.md

ibv_mtu path_mtu(ibv_qp* qp) {
    ibv_qp_attr is{};
    ibv_qp_init_attr made{};
    if (const int rc = ibv_query_qp(qp, &is, IBV_QP_PATH_MTU, &made); rc != 0) bare::throw_errno("ibv_query_qp", rc);
    return is.path_mtu;
}

void exchange_and_look(const std::string& server, const std::string& client) {
    std::vector<ibv_mtu> seen;
    exchange_between(server, client, [&] {
        for (ibv_qp* qp : live_queue_pairs()) seen.push_back(path_mtu(qp));
        return true;
    });
    CHECK(seen == std::vector{IBV_MTU_1024, IBV_MTU_1024});
}

} // namespace

TEST_CASE("Path_mtu.the_end_with_the_larger_one_connects", "[two-hosts]") {
    const auto [here, there] = pair_of_devices(mixed_pair);
    exchange_and_look(there, here);
}

TEST_CASE("Path_mtu.the_end_with_the_smaller_one_connects", "[two-hosts]") {
    const auto [here, there] = pair_of_devices(mixed_pair);
    exchange_and_look(here, there);
}

} // namespace sluice::rdma::testing
