#include <sluice/when_all.hpp>

#include "tests/conformance/pair.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace sluice::conformance {

namespace {

constexpr auto everything = access::remote_read | access::remote_write | access::remote_atomic;
constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::array<std::size_t, 9> sizes{0, 1, 4095, 4096, 4097, 64 * kib, mib, mib + 1, 4 * mib + 4095};

task<void> serve_filled(runtime&, connection& c, std::size_t size_bytes, std::uint64_t seed) {
    buffer memory(size_bytes);
    fill(memory.bytes(), seed);
    co_await share_until_closed(c, memory, everything);
}

side server_of(std::size_t size_bytes, std::uint64_t seed = 1) {
    return [=](runtime& rt, connection& c) { return serve_filled(rt, c, size_bytes, seed); };
}

task<void> reads_every_size(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes + 1);
    std::uint64_t total = 0;
    for (const std::size_t size : sizes) {
        fill_with(mine.bytes(), std::byte{0xee});
        must(co_await c.read(theirs.first(size), mine.first(size)));
        must_hold(mine.bytes().first(size), 1);
        must_be_all(mine.bytes().subspan(size), std::byte{0xee});
        total += size;
    }
    const connection_stats stats = c.stats();
    VERIFY_EQUAL(stats.read.operations, sizes.size());
    VERIFY_EQUAL(stats.read.bytes(c.path()), total);
    VERIFY_EQUAL(stats.read.failures, 0U);
}

task<void> writes_every_size(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes);
    buffer back(theirs.size_bytes);
    std::uint64_t total = 0;
    std::uint64_t seed = 100;
    for (const std::size_t size : sizes) {
        fill(mine.bytes().first(size), ++seed);
        must(co_await c.write(theirs.first(size), mine.first(size)));
        must(co_await c.read(theirs, back));
        must_hold(back.bytes().first(size), seed);
        total += size;
    }
    const connection_stats stats = c.stats();
    VERIFY_EQUAL(stats.write.operations, sizes.size());
    VERIFY_EQUAL(stats.write.bytes(c.path()), total);
    VERIFY_EQUAL(stats.write.latency.count(), sizes.size());
}

task<void> moves_odd_places(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer whole(theirs.size_bytes);
    buffer mine(theirs.size_bytes);
    must(co_await c.read(theirs, whole));
    const std::array<std::size_t, 6> offsets{0, 1, 7, 63, 4095, 4097};
    const std::array<std::size_t, 5> lengths{1, 3, 4096, 65537, 300'001};
    for (const std::size_t from : offsets) {
        for (const std::size_t to : offsets) {
            for (const std::size_t n : lengths) {
                fill_with(mine.bytes(), std::byte{0xee});
                must(co_await c.read(theirs.subview(from, n), mine.subview(to, n)));
                VERIFY(std::equal(whole.data() + from, whole.data() + from + n, mine.data() + to));
                must_be_all(mine.bytes().first(to), std::byte{0xee});
                must_be_all(mine.bytes().subspan(to + n, 64), std::byte{0xee});
                // And the way back: nothing beside the range may change.
                std::ranges::reverse(mine.bytes().subspan(to, n));
                std::copy_n(mine.data() + to, n, whole.data() + from);
                must(co_await c.write(theirs.subview(from, n), mine.subview(to, n)));
            }
        }
    }
    must(co_await c.read(theirs, mine));
    VERIFY(std::ranges::equal(mine.bytes(), whole.bytes()));
}

task<void> moves_64_mib(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    buffer mine(theirs.size_bytes);
    must(co_await c.read(theirs, mine));
    must_hold(mine.bytes(), 1);
    fill(mine.bytes(), 2);
    must(co_await c.write(theirs, mine));
    fill_with(mine.bytes(), std::byte{});
    must(co_await c.read(theirs, mine));
    must_hold(mine.bytes(), 2);
}

task<result<void>> many_of(connection& c, remote_region theirs, region_view mine, std::size_t first, std::size_t count,
                           std::size_t size) {
    for (std::size_t i = first; i < first + count; ++i) {
        auto done = co_await c.read(theirs.subview(i * size, size), mine.subview(i * size, size));
        if (!done) co_return done;
    }
    co_return result<void>{};
}

/// Twenty times the limit in flight at once, small and large mixed.
task<void> has_thousands_in_flight(runtime&, connection& c) {
    VERIFY_EQUAL(c.capabilities().operations_in_flight, 256U);
    const remote_region theirs = must(co_await c.receive<remote_region>());
    constexpr std::size_t size = 1000;
    constexpr std::size_t count = 5000;
    VERIFY(theirs.size_bytes >= size * count);
    buffer mine(theirs.size_bytes);
    scope running;
    for (std::size_t i = 0; i < count; ++i)
        running.spawn(read_task(c, theirs.subview(i * size, size), mine.subview(i * size, size)));
    must(co_await running.join());
    must_hold(mine.bytes().first(size * count), 1);
    VERIFY_EQUAL(c.stats().read.operations, count);
    VERIFY_EQUAL(c.stats().read.bytes(c.path()), size * count);

    for (std::size_t i = 0; i < 4; ++i) running.spawn(read_task(c, theirs, mine));
    for (std::size_t i = 0; i < 64; ++i) running.spawn(many_of(c, theirs, mine, i * 10, 10, size));
    must(co_await running.join());
    must_hold(mine.bytes(), 1);
}

task<void> serves_while_using(runtime&, connection& c) {
    buffer shared_memory(4 * mib);
    buffer mine(4 * mib);
    fill(shared_memory.bytes(), 5);
    auto shared = must(co_await c.share(shared_memory, access::remote_read));
    must(co_await c.send(shared.description()));
    const remote_region theirs = must(co_await c.receive<remote_region>());
    for (int i = 0; i < 8; ++i) must(co_await c.read(theirs, mine));
    must_hold(mine.bytes(), 5);
    must(co_await c.send(char{1}));
    must(co_await c.receive<char>()); // the peer is done as well
    if (c.capabilities().remote_cpu_bypass) co_return; // nobody counts
    if (c.capabilities().lanes == 1) VERIFY_EQUAL(c.stats().served_operations, 8U);
    else VERIFY(c.stats().served_operations >= 8);
    VERIFY_EQUAL(c.stats().served_bytes, 8 * 4 * mib);
    VERIFY_EQUAL(c.stats().refused_operations, 0U);
}

task<void> moves_huge(runtime&, connection& c) {
    const remote_region theirs = must(co_await c.receive<remote_region>());
    constexpr std::size_t period = 64 * mib + 4096; // another one than the server's, so that a wrong place shows
    const auto mine = buffer::repeated(theirs.size_bytes, period);
    must(co_await c.read(theirs, mine));
    VERIFY_EQUAL(c.stats().read.bytes(c.path()), theirs.size_bytes);
    buffer expected(64 * mib);
    fill(expected.bytes(), 1);
    // Of each byte of the period the last copy is left.
    for (std::size_t at = theirs.size_bytes - period; at < theirs.size_bytes;) {
        const std::size_t n = std::min({expected.size_bytes() - at % expected.size_bytes(), theirs.size_bytes - at});
        VERIFY(std::equal(mine.data() + at, mine.data() + at + n, expected.data() + at % expected.size_bytes()));
        at += n;
    }
    must(co_await c.write(theirs.first(mib), mine.first(mib)));
    must(co_await c.write(theirs, mine));
    VERIFY_EQUAL(c.stats().write.bytes(c.path()), theirs.size_bytes + mib);
}

task<void> serves_huge(runtime&, connection& c, std::size_t size) {
    const auto memory = buffer::repeated(size, 64 * mib);
    fill(memory.bytes().first(64 * mib), 1);
    co_await share_until_closed(c, memory, everything);
}

} // namespace

CONFORMANCE_TEST("One_sided.reads_every_size", p) { run_pair(p, reads_every_size, server_of(sizes.back())); }

CONFORMANCE_TEST("One_sided.writes_every_size", p) { run_pair(p, writes_every_size, server_of(sizes.back())); }

CONFORMANCE_TEST("One_sided.moves_from_and_to_odd_places_and_nothing_beside", p) {
    run_pair(p, moves_odd_places, server_of(400'000));
}

CONFORMANCE_TEST("One_sided.moves_64_MiB", p) { run_pair(p, moves_64_mib, server_of(64 * mib)); }

CONFORMANCE_TEST("One_sided.has_thousands_in_flight_and_queues_what_is_over_the_limit", p) {
    pair_options options;
    options.client.operations_in_flight = 1024;
    options.server.operations_in_flight = 256; // the smaller limit counts
    run_pair(p, has_thousands_in_flight, server_of(5 * mib), options);
}

CONFORMANCE_TEST("One_sided.both_ends_use_and_serve_at_once", p) { run_pair(p, serves_while_using, serves_while_using); }

CONFORMANCE_TEST("One_sided.moves_gibibytes_at_once", p) {
    if (p.huge_bytes == 0) SKIP("one row of a provider is enough");
    run_pair(p, moves_huge, [&p](runtime& rt, connection& c) { return serves_huge(rt, c, p.huge_bytes); });
}

} // namespace sluice::conformance
