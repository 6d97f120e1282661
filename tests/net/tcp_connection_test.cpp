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
