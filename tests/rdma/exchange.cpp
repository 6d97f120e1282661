#include "tests/rdma/exchange.hpp"

#include "tests/conformance/buffer.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/scope.hpp>

#include <catch2/interfaces/catch_interfaces_capture.hpp>

namespace sluice::rdma::testing {

namespace {

using conformance::buffer;
using conformance::must;

constexpr std::size_t part_bytes = std::size_t{1} << 20;
constexpr std::size_t message_bytes = 100'000; // travels as fragments
constexpr int small_messages = 20;

task<void> do_write(connection& c, remote_view to, region_view from) { must(co_await c.write(to, from)); }
task<void> do_read(connection& c, remote_view from, region_view to) { must(co_await c.read(from, to)); }

task<void> do_send(connection& c, buffer& large, std::uint64_t seed) {
    buffer small(64);
    for (int i = 0; i < small_messages; ++i) {
        conformance::fill(small.bytes(), seed + static_cast<std::uint64_t>(i));
        must(co_await c.send(small));
    }
    conformance::fill(large.bytes(), seed);
    must(co_await c.send(large));
}

task<void> do_receive(connection& c, buffer& large, std::uint64_t seed) {
    for (int i = 0; i < small_messages; ++i) {
        const received got = must(co_await c.receive(large));
        VERIFY_EQUAL(got.size_bytes, 64U);
        conformance::must_hold(large.bytes().first(64), seed + static_cast<std::uint64_t>(i));
    }
    const received got = must(co_await c.receive(large));
    VERIFY_EQUAL(got.size_bytes, message_bytes);
    conformance::must_hold(large.bytes(), seed);
}

/// Writes, reads and messages in both directions at once, a round after the other until `enough` says so, which one
/// end is asked; it tells the other.
task<void> exchanges(connection& c, std::uint64_t self, std::function<bool()> enough) {
    const std::uint64_t peer = 1 - self;
    buffer mine(2 * part_bytes); // the peer writes to the first half and reads from the second
    buffer from(part_bytes);
    buffer into(part_bytes);
    buffer sent(message_bytes);
    buffer got(message_bytes);
    auto shared = must(co_await c.share(mine, access::remote_read | access::remote_write));
    must(co_await c.send(shared.description()));
    const remote_region there = must(co_await c.receive<remote_region>());
    for (std::uint64_t round = 1, again = 1; again != 0; ++round) {
        const std::uint64_t seed = 1000 * round;
        conformance::fill(mine.bytes().subspan(part_bytes), seed + self);
        conformance::fill(from.bytes(), seed + 10 + self);
        must(co_await c.send(round)); // what the peer reads is there
        VERIFY_EQUAL(must(co_await c.receive<std::uint64_t>()), round);
        scope all;
        all.spawn(do_write(c, there.subview(0, part_bytes), from));
        all.spawn(do_read(c, there.subview(part_bytes, part_bytes), into));
        all.spawn(do_send(c, sent, seed + 20 + self));
        all.spawn(do_receive(c, got, seed + 20 + peer));
        must(co_await all.join());
        conformance::must_hold(into.bytes(), seed + peer);
        must(co_await c.send(round)); // what was written is there
        VERIFY_EQUAL(must(co_await c.receive<std::uint64_t>()), round);
        conformance::must_hold(mine.bytes().first(part_bytes), seed + 10 + peer);
        if (enough) {
            again = enough() ? 0 : 1;
            must(co_await c.send(again));
        } else {
            again = must(co_await c.receive<std::uint64_t>());
        }
    }
    // Who sent the last word closes; one that left at once could take it along.
    if (enough) must(co_await c.close());
    else must(co_await c.closed());
}

} // namespace

void exchange_between(const std::string& server, const std::string& client, const std::function<bool()>& enough) {
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    {
        auto listening = our_end::listening(
            address_of_device(server), [](runtime&, connection& c) { return exchanges(c, 0, {}); }, {}, server);
        auto connecting = our_end::connecting(
            listening->address(), [&](runtime&, connection& c) { return exchanges(c, 1, enough); }, {}, client);
        connecting->join();
        listening->join();
    }
    check_nothing_left();
}

} // namespace sluice::rdma::testing
