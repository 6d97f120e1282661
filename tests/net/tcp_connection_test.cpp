#include <sluice/scope.hpp>
#include <sluice/when_all.hpp>

#include "tests/net/tcp_pair.hpp"
#include "tests/support/run.hpp"

#include <string>

using namespace sluice;
using namespace sluice::testing;

namespace {

task<void> read_and_write(std::size_t size, std::uint32_t lanes) {
    executor& home = co_await this_executor();
    connected_pair pair(home, {.lanes = lanes});
    memory theirs(size, 3);
    memory mine(size, 9);
    auto shared = co_await pair.b.share(size == 0 ? memory(1).view() : theirs.view(), all_access);
    if (size == 0) co_return;
    REQUIRE(shared);
    auto got = co_await pair.a.read(shared->description(), mine);
    REQUIRE(got);
    CHECK(mine.holds(3));
    mine.fill(77);
    auto put = co_await pair.a.write(shared->description(), mine);
    REQUIRE(put);
    CHECK(theirs.holds(77));
    CHECK(pair.a.stats().read.bytes(path::tcp) == size);
    CHECK(pair.b.stats().served_bytes == 2 * size);
    CHECK(pair.b.stats().served_operations == 2 * (size > (1 << 20) ? std::uint64_t{lanes} : 1));
}

} // namespace

TEST_CASE("Tcp_connection.reads_and_writes_every_size") {
    for (const std::size_t size : std::initializer_list<std::size_t>{1, 8, 4095, 4096, 4097, 16384, 16385, 65536, 524288,
                                                                     524289, 1 << 20, (1 << 20) + 1, (8 << 20) + 13}) {
        INFO("size " << size);
        run(read_and_write(size, 1));
    }
}

TEST_CASE("Tcp_connection.spreads_large_operations_over_lanes") {
    run(read_and_write(8 << 20, 4));
    run(read_and_write((1 << 20) + 1, 2));
}

TEST_CASE("Tcp_connection.atomics_give_the_value_before") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory m(4096, 0);
        auto* words = reinterpret_cast<std::uint64_t*>(m.data());
        words[1] = 40;
        auto shared = co_await b.share(m, all_access);
        REQUIRE(shared);
        const auto word = shared->description().subview(8, 8);
        auto before = co_await a.fetch_add(word, 2);
        REQUIRE(before);
        CHECK(*before == 40);
        CHECK(words[1] == 42);
        auto swapped = co_await a.compare_swap(word, 42, 7);
        REQUIRE(swapped);
        CHECK(*swapped == 42);
        CHECK(words[1] == 7);
        auto kept = co_await a.compare_swap(word, 42, 8);
        REQUIRE(kept);
        CHECK(*kept == 7);
        CHECK(words[1] == 7);
        CHECK(a.stats().atomic.operations == 3);
        CHECK(b.stats().served_operations == 3);
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_connection.a_refused_operation_leaves_the_connection_alive") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory theirs(64 * 1024, 1);
        memory mine(64 * 1024, 2);
        auto readable = co_await b.share(theirs, access::remote_read);
        REQUIRE(readable);
        const remote_region good = readable->description();
        remote_region bad = good;
        bad.key += 1;
        auto unknown = co_await a.read(bad, mine);
        REQUIRE_FALSE(unknown);
        CHECK(unknown.error() == condition::access_denied);
        bad = good;
        bad.generation += 1;
        auto old = co_await a.read(bad, mine);
        CHECK(old.error() == condition::access_denied);
        for (const std::size_t size : {std::size_t{8}, std::size_t{64 * 1024}}) {
            auto unwritable = co_await a.write(good.first(size), mine.view().first(size));
            REQUIRE_FALSE(unwritable);
            CHECK(unwritable.error() == condition::access_denied);
        }
        auto no_atomics = co_await a.fetch_add(good.first(8), 1);
        CHECK(no_atomics.error() == condition::access_denied);
        bad = good;
        bad.address += 1;
        auto beyond = co_await a.read(bad, mine);
        REQUIRE_FALSE(beyond);
        CHECK(beyond.error() == condition::out_of_range);
        bad = good;
        bad.address -= 8;
        auto before = co_await a.read(bad, mine);
        CHECK(before.error() == condition::out_of_range);
        bad = good;
        bad.owner += 1;
        auto foreign = co_await a.read(bad, mine);
        CHECK(foreign.error() == condition::access_denied);
        CHECK(theirs.holds(1));
        auto fine = co_await a.read(good, mine);
        CHECK(fine);
        CHECK(mine.holds(1));
        CHECK(b.stats().refused_operations == 7);
        CHECK(a.stats().read.failures == 5);
        CHECK(a.is_open());
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_connection.thousands_of_operations_wait_their_turn") {
    const auto home = make_executor();
    connected_pair pair(*home, {.lanes = 2, .operations_in_flight = 16});
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory theirs(1 << 20, 0);
        auto shared = co_await b.share(theirs, all_access);
        REQUIRE(shared);
        memory mine(1 << 20, 33);
        const auto one = [](connection& c, remote_view remote, region_view local) -> task<void> {
            auto put = co_await c.write(remote, local);
            REQUIRE(put);
            std::fill(local.bytes().begin(), local.bytes().end(), std::byte{0});
            auto got = co_await c.read(remote, local);
            REQUIRE(got);
        };
        scope all;
        for (std::size_t i = 0; i < 4096; ++i)
            all.spawn(one(a, shared->description().subview(i * 256, 256), mine.view().subview(i * 256, 256)));
        auto joined = co_await all.join();
        REQUIRE(joined);
        CHECK(theirs.holds(33));
        CHECK(mine.holds(33));
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_connection.a_batch_is_one_send_and_gives_the_first_error") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a, connection& b, executor& on) -> task<void> {
        memory theirs(64 * 1024, 1);
        memory mine(64 * 1024, 2);
        auto shared = co_await b.share(theirs, all_access);
        REQUIRE(shared);
        const remote_region region = shared->description();
        auto empty = a.batch();
        auto nothing = co_await empty.submit();
        CHECK(nothing);
        auto batch = a.batch();
        for (std::size_t i = 0; i < 16; ++i) batch.read(region.subview(i * 100, 100), mine.view().subview(i * 100, 100));
        CHECK(batch.size() == 16);
        const auto before = on.stats().operations_started;
        auto done = co_await batch.submit();
        REQUIRE(done);
        CHECK(on.stats().operations_started - before <= 5);
        for (std::size_t i = 0; i < 1600; ++i) REQUIRE(mine.data()[i] == memory::pattern(i, 1));
        remote_region bad = region;
        bad.key += 1;
        auto mixed = a.batch();
        mixed.write(region.first(8), mine.view().first(8));
        mixed.read(bad.first(8), mine.view().first(8));
        mixed.send(mine.view().first(8));
        auto failed = co_await mixed.submit();
        REQUIRE_FALSE(failed);
        CHECK(failed.error() == condition::access_denied);
        auto message = co_await b.receive<std::uint64_t>();
        CHECK(message);
    };
    sync_wait(*home, body(pair.a, pair.b, *home));
}
