#include "tests/rdma/both_ends.hpp"
#include "tests/support/death.hpp"

#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>
#include <csignal>

// Apart from the others: a process that forks has no helper threads.

using namespace sluice;
using namespace sluice::testing;

namespace {

/// The memory is being registered by a helper thread, or the peer has not said yet that it knows.
task<void> goes_while_it_shares(two_ends& world) {
    auto met = co_await meet(world);
    world.world.automatic(false);
    some_memory small(64);
    outcome shared;
    scope s;
    s.spawn(shares(met.client, small.view(), access::remote_read, shared));
    co_await round_trips();
    met.client = {};
    static_cast<void>(co_await s.join());
}

} // namespace

TEST_CASE("Connection_contract.one_that_shares_memory_stays_until_that_is_done") {
    CHECK_BREAKS_CONTRACT("destroyed while an operation on it is awaited", {
        two_ends world;
        world.world.automatic(true);
        check_ok(world.listen());
        world.run(goes_while_it_shares(world));
    });
}
