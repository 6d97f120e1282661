#include "tests/rdma/both_ends.hpp"

#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <array>

// More at once than there are buffers, words, credits or places in the send queue.

using namespace sluice;
using namespace sluice::testing;

namespace {

using block = std::array<std::byte, 2000>;

task<void> sends_value(connection& c, block from, int& sent) {
    auto r = co_await c.send(from);
    if (r) ++sent;
}

task<void> adds(connection& c, remote_region to, int& added, std::uint64_t& largest) {
    auto r = co_await c.fetch_add(to, 1);
    if (!r) co_return;
    ++added;
    largest = std::max(largest, *r);
}

task<void> writes(connection& c, remote_region to, const_region_view from, std::uint32_t number, int& written) {
    auto r = co_await c.write_with_immediate(to, from, number);
    if (r) ++written;
}

/// From memory that the device does not know: through one of eight buffers each.
task<void> messages(two_ends& world) {
    auto met = co_await meet(world);
    block from;
    from.fill(std::byte{7});
    int sent = 0;
    scope s;
    for (int i = 0; i < 300; ++i) s.spawn(sends_value(met.client, from, sent));
    for (int i = 0; i < 300; ++i) {
        auto got = co_await met.server.receive<block>();
        REQUIRE(got);
        CHECK(*got == from);
    }
    static_cast<void>(co_await s.join());
    CHECK(sent == 300);
}

task<void> atomics(two_ends& world) {
    auto met = co_await meet(world);
    some_memory word(8);
    std::optional<shared_region> shared;
    outcome did;
    co_await shares(met.server, word.view(), access::remote_atomic, did, &shared);
    check_ended(did);
    co_await settle();
    int added = 0;
    std::uint64_t largest = 0;
    scope s;
    for (int i = 0; i < 600; ++i) s.spawn(adds(met.client, shared->description(), added, largest));
    static_cast<void>(co_await s.join());
    CHECK(added == 600);
    CHECK(largest == 599);
}

task<void> immediates(two_ends& world) {
    auto met = co_await meet(world);
    some_memory from(8), to(8), unused(8);
    std::optional<shared_region> shared;
    outcome did;
    co_await shares(met.server, to.view(), access::remote_write, did, &shared);
    check_ended(did);
    co_await settle();
    int written = 0;
    scope s;
    for (std::uint32_t i = 0; i < 1000; ++i)
        s.spawn(writes(met.client, shared->description(), from.view(), i, written));
    for (std::uint32_t i = 0; i < 1000; ++i) {
        auto got = co_await met.server.receive(unused.view());
        REQUIRE(got);
        CHECK(got->immediate == i);
        CHECK(got->size_bytes == 8);
    }
    static_cast<void>(co_await s.join());
    CHECK(written == 1000);
}

void run_in_a_world(task<void> (*work)(two_ends&)) {
    two_ends world;
    world.world.automatic(true);
    check_ok(world.listen());
    world.run(work(world));
}

} // namespace

TEST_CASE("Crowding.messages_from_unregistered_memory_wait_for_a_buffer") { run_in_a_world(messages); }

TEST_CASE("Crowding.atomics_wait_for_a_word") { run_in_a_world(atomics); }

TEST_CASE("Crowding.a_thousand_immediates_arrive_in_order") { run_in_a_world(immediates); }
