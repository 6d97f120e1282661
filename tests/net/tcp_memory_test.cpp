#include <sluice/scope.hpp>

#include "tests/net/tcp_pair.hpp"
#include "tests/support/heap.hpp"
#include "tests/support/run.hpp"

#include <algorithm>
#include <malloc.h>
#include <memory>
#include <stdexcept>
#include <sys/resource.h>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLUICE_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(SLUICE_TEST_SANITIZED)
// <sanitizer/allocator_interface.h>, which gcc 12 of Debian comes without.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#define SLUICE_TEST_HEAP_BYTES() __sanitizer_get_current_allocated_bytes()
#else
#define SLUICE_TEST_HEAP_BYTES() (mallinfo2().uordblks + mallinfo2().hblkhd)
#endif

using namespace sluice;
using namespace sluice::testing;

namespace {

/// Unlike an assertion of Catch2, touches the heap only when it fails.
template <class T>
void must(const result<T>& r) {
    if (!r) throw std::runtime_error(r.error().message());
}

task<void> read_once(connected_pair& pair, remote_region region, region_view into) {
    auto got = co_await pair.a.read(region.first(into.size_bytes()), into);
    must(got);
}

} // namespace

TEST_CASE("Tcp_memory.a_thousand_idle_connections_are_small_and_all_work") {
    constexpr std::size_t count = 1000;
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 2 * count + 100) SKIP("the limit of open files is " << limit.rlim_max << ", needed are " << 2 * count + 100);
    const rlimit raised{.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 2 * count + 100), .rlim_max = limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &raised) == 0);

    const auto home = make_executor({.completion_entries = 16384});
    std::vector<std::unique_ptr<connected_pair>> pairs;
    pairs.reserve(count);
    const auto settle = [&] { sync_wait(*home, yields(20)); };
    settle();
    const std::size_t before = SLUICE_TEST_HEAP_BYTES();
    for (std::size_t i = 0; i < count; ++i)
        pairs.push_back(std::make_unique<connected_pair>(*home, pair_options{.operations_in_flight = 1024, .receive_credits = 64}));
    settle();
    const std::size_t idle = (SLUICE_TEST_HEAP_BYTES() - before) / (2 * count);
    INFO("bytes of an idle connection: " << idle);
    CHECK(idle <= 14 * 1024);

    memory theirs(8 * count, 4);
    memory mine(8 * count, 5);
    const auto use_all = [](std::vector<std::unique_ptr<connected_pair>>& all, memory& from, memory& to) -> task<void> {
        std::vector<shared_region> shares;
        for (auto& pair : all) {
            auto shared = co_await pair->b.share(from, access::remote_read);
            REQUIRE(shared);
            shares.push_back(std::move(*shared));
        }
        scope s;
        for (std::size_t i = 0; i < all.size(); ++i) {
            remote_region region = shares[i].description();
            region.address += 8 * i;
            s.spawn(read_once(*all[i], region, to.view().subview(8 * i, 8)));
        }
        auto joined = co_await s.join();
        REQUIRE(joined);
        CHECK(to.holds(4));
    };
    sync_wait(*home, use_all(pairs, theirs, mine));
    settle();
    const std::size_t used = (SLUICE_TEST_HEAP_BYTES() - before) / (2 * count);
    INFO("bytes of a connection that was used and is idle again: " << used);
    CHECK(used <= 16 * 1024);
    pairs.clear();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("Tcp_memory.operations_touch_the_heap_not_once_in_steady_state") {
    const auto home = make_executor();
    connected_pair pair(*home);
    memory theirs(1 << 20, 4);
    memory mine(1 << 20, 5);
    const auto body = [](connected_pair& p, memory& remote, memory& local, std::uint64_t& calls) -> task<void> {
        auto shared = co_await p.b.share(remote, all_access);
        REQUIRE(shared);
        const remote_region region = shared->description();
        for (int round = 0; round < 200; ++round) {
            if (round == 100) calls = heap_allocations();
            auto little = co_await p.a.read(region.first(64), local.view().first(64));
            must(little);
            auto much = co_await p.a.read(region, local);
            must(much);
            auto small = co_await p.a.write(region.first(64), local.view().first(64));
            must(small);
            auto large = co_await p.a.write(region, local);
            must(large);
            auto value = co_await p.a.fetch_add(region.first(8), 1);
            must(value);
            auto sent = co_await p.a.send(local.view().first(64));
            must(sent);
            auto got = co_await p.b.receive(local.view().first(64));
            must(got);
        }
        calls = heap_allocations() - calls;
    };
    std::uint64_t calls = 0;
    sync_wait(*home, body(pair, theirs, mine, calls));
    CHECK(calls == 0);
}
