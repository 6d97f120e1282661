#include "runtime/poison.hpp"
#include "tests/support/death.hpp"
#include "tests/support/heap.hpp"

#include <sluice/executor.hpp>
#include <sluice/log.hpp>
#include <sluice/pool.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

using sluice::memory_pool;
using sluice::pooled_buffer;
using sluice::purpose;
using sluice::result;
using sluice::task;

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

std::unique_ptr<sluice::executor> make_executor() {
    auto made = sluice::executor::create();
    REQUIRE(made);
    return std::move(*made);
}

std::unique_ptr<memory_pool> make_pool(sluice::pool_options options = {.size_bytes = 2 * mib}) {
    auto made = memory_pool::create(options);
    REQUIRE(made);
    return std::move(*made);
}

task<result<pooled_buffer>> allocate(memory_pool& pool, std::size_t n, purpose use = purpose::general) {
    co_return co_await pool.allocate(n, use);
}

/// Tasks that wait at once, on one executor, without a scope: each is a coroutine that starts when it is made ready.
struct background {
    struct promise_type : sluice::detail::promise_base {
        background get_return_object() noexcept {
            handle = std::coroutine_handle<promise_type>::from_promise(*this);
            return {this};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };
    promise_type* promise;
};

void start(background b, sluice::executor& home, sluice::stop_token token = {}) {
    b.promise->bind(home, token);
    home.make_ready(*b.promise);
}

/// What a request got, in the order in which they were served.
struct outcomes {
    std::vector<std::string> order;
    std::vector<pooled_buffer> held;
};

background request(memory_pool& pool, std::size_t n, purpose use, const char* name, outcomes& out) {
    auto got = co_await pool.allocate(n, use);
    if (got) {
        out.order.emplace_back(name);
        out.held.push_back(std::move(*got));
    } else {
        out.order.push_back(std::string(name) + ": " + got.error().message());
    }
}

task<void> let_others_run() {
    for (int i = 0; i < 4; ++i) co_await sluice::yield();
}

using strings = std::vector<std::string>;

} // namespace

TEST_CASE("Pool.leases_exactly_the_bytes_asked_for_on_a_page_boundary") {
    auto home = make_executor();
    auto pool = make_pool();
    for (const std::size_t n : {std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, 100 * kib}) {
        const auto lease = sluice::sync_wait(*home, allocate(*pool, n));
        REQUIRE(lease);
        CHECK(lease->size_bytes() == n);
        CHECK(reinterpret_cast<std::uintptr_t>(lease->data()) % 4096 == 0);
        CHECK(lease->view().registration() == &pool->registration());
        std::memset(lease->data(), 0x5a, n);
    }
    CHECK(pool->occupancy().used_bytes == 0);
}

TEST_CASE("Pool.memory_is_one_range_aligned_to_2_MiB_and_reads_as_zero_at_first") {
    auto pool = make_pool({.size_bytes = 3 * mib});
    CHECK(pool->registration().size_bytes == 4 * mib);
    CHECK(reinterpret_cast<std::uintptr_t>(pool->registration().base) % (2 * mib) == 0);
    const auto all = pool->try_allocate(4 * mib, purpose::receive);
    REQUIRE(all);
    CHECK(all->data() == pool->registration().base);
    CHECK(std::all_of(all->bytes().begin(), all->bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("Pool.counts_whole_pages_leases_and_the_peak") {
    auto pool = make_pool();
    const auto empty = pool->occupancy();
    CHECK(empty.size_bytes == 2 * mib);
    CHECK(empty.reserve_bytes == 256 * kib);
    CHECK(empty.used_bytes == 0);
    CHECK(empty.leases == 0);
    {
        const auto a = pool->try_allocate(5 * 4096 - 1);
        const auto b = pool->try_allocate(1);
        REQUIRE(a);
        REQUIRE(b);
        CHECK(b->data() == a->data() + 5 * 4096); // the tail of a power of two is not wasted
        CHECK(pool->occupancy().used_bytes == 6 * 4096);
        CHECK(pool->occupancy().leases == 2);
    }
    const auto after = pool->occupancy();
    CHECK(after.used_bytes == 0);
    CHECK(after.leases == 0);
    CHECK(after.peak_bytes == 6 * 4096);
    CHECK(after.waits == 0);
}

TEST_CASE("Pool.an_empty_lease_is_given_at_once_even_when_the_pool_is_full") {
    auto home = make_executor();
    auto pool = make_pool();
    const auto all = pool->try_allocate(2 * mib, purpose::receive);
    REQUIRE(all);
    const auto none = sluice::sync_wait(*home, allocate(*pool, 0));
    REQUIRE(none);
    CHECK(static_cast<bool>(*none));
    CHECK(none->size_bytes() == 0);
    CHECK(pool->occupancy().leases == 2);
    CHECK(pool->try_allocate(0)->size_bytes() == 0);
}

TEST_CASE("Pool.fails_at_once_when_a_request_can_never_fit_and_names_both_numbers") {
    auto home = make_executor();
    auto pool = make_pool({.size_bytes = 2 * mib, .receive_reserve_bytes = 64 * kib});
    const auto check = [](const result<pooled_buffer>& r, const char* text) {
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::out_of_resources);
        INFO(r.error().message());
        CHECK(r.error().message().find(text) != std::string::npos);
    };
    check(sluice::sync_wait(*home, allocate(*pool, 2 * mib - 64 * kib + 1)),
          "2031617 bytes asked for, at most 2031616 can ever be had (65536 are reserved for receives)");
    check(pool->try_allocate(2 * mib - 64 * kib + 1), "2031617 bytes asked for, at most 2031616");
    check(pool->try_allocate(2 * mib + 1, purpose::receive), "2097153 bytes asked for, at most 2097152 can ever be had;");
    check(sluice::sync_wait(*home, allocate(*pool, SIZE_MAX)), "18446744073709551615 bytes");
    CHECK(sluice::sync_wait(*home, allocate(*pool, 2 * mib - 64 * kib)));
    CHECK(sluice::sync_wait(*home, allocate(*pool, 2 * mib, purpose::receive)));
}

TEST_CASE("Pool.try_allocate_never_waits_and_never_overtakes") {
    auto home = make_executor();
    auto pool = make_pool();
    auto most = pool->try_allocate(mib);
    REQUIRE(most);
    const auto full = pool->try_allocate(mib);
    REQUIRE_FALSE(full);
    CHECK(full.error() == sluice::errc::out_of_resources);
    outcomes out;
    start(request(*pool, mib, purpose::general, "waits", out), *home);
    sluice::sync_wait(*home, let_others_run());
    CHECK_FALSE(pool->try_allocate(4096));                 // there is room, but another is before us
    CHECK(pool->try_allocate(4096, purpose::receive));     // in another queue
    most->reset();
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"waits"});
}

TEST_CASE("Pool.serves_waiters_in_order_and_a_large_one_is_not_overtaken") {
    auto home = make_executor();
    auto pool = make_pool({.size_bytes = 2 * mib, .receive_reserve_bytes = 4 * kib});
    auto a = pool->try_allocate(mib);
    auto b = pool->try_allocate(mib - 4 * kib);
    REQUIRE(a);
    REQUIRE(b);
    outcomes out;
    start(request(*pool, mib + 64 * kib, purpose::general, "large", out), *home);
    start(request(*pool, 4 * kib, purpose::general, "small", out), *home);
    start(request(*pool, 8 * kib, purpose::general, "other", out), *home);
    sluice::sync_wait(*home, let_others_run());
    CHECK(pool->occupancy().waiters == 3);
    CHECK(pool->occupancy().waits == 3);
    b->reset();
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order.empty()); // room for the small ones, but the large one is first
    a->reset();
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"large", "small", "other"});
    CHECK(pool->occupancy().waiters == 0);
}

TEST_CASE("Pool.general_leases_never_touch_the_reserve_and_general_waiters_never_block_receives") {
    auto home = make_executor();
    auto pool = make_pool({.size_bytes = 2 * mib, .receive_reserve_bytes = 128 * kib});
    std::vector<pooled_buffer> pages; // as broken up as it can be: one page each
    while (auto page = pool->try_allocate(1)) pages.push_back(std::move(*page));
    CHECK(pages.size() == (2 * mib - 128 * kib) / 4096);
    outcomes out;
    start(request(*pool, 4 * kib, purpose::general, "general", out), *home);
    start(request(*pool, 128 * kib, purpose::receive, "receive", out), *home);
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"receive"});
    start(request(*pool, 4 * kib, purpose::receive, "second receive", out), *home);
    sluice::sync_wait(*home, let_others_run());
    pages.pop_back();
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"receive", "second receive"}); // receives may use all of the pool, and go first
    pages.pop_back();
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"receive", "second receive", "general"});
}

TEST_CASE("Pool.a_receive_takes_from_the_reserve_first_and_leaves_the_rest_whole") {
    auto pool = make_pool({.size_bytes = 2 * mib, .receive_reserve_bytes = 128 * kib});
    const auto receive = pool->try_allocate(128 * kib, purpose::receive);
    REQUIRE(receive);
    CHECK(receive->data() == pool->registration().base + 2 * mib - 128 * kib);
    CHECK(pool->try_allocate(2 * mib - 128 * kib));
}

TEST_CASE("Pool.a_stop_ends_a_wait_and_lets_the_next_one_be_served") {
    auto home = make_executor();
    auto pool = make_pool({.size_bytes = 2 * mib, .receive_reserve_bytes = 4 * kib});
    auto held = pool->try_allocate(mib);
    REQUIRE(held);
    sluice::stop_source source;
    outcomes out;
    start(request(*pool, mib, purpose::general, "large", out), *home, source.token());
    start(request(*pool, 4 * kib, purpose::general, "small", out), *home);
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order.empty());
    source.request_stop();
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"large: canceled", "small"});
    CHECK(pool->occupancy().waiters == 0);
    CHECK(pool->occupancy().used_bytes == mib + 4 * kib);
}

TEST_CASE("Pool.a_stopped_token_gives_canceled_and_takes_nothing") {
    auto home = make_executor();
    auto pool = make_pool();
    sluice::stop_source source;
    source.request_stop();
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, mib}) {
        const auto r = sluice::sync_wait(*home, allocate(*pool, n), source.token());
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    CHECK(pool->occupancy().leases == 0);
}

TEST_CASE("Pool.success_wins_over_a_stop_that_comes_after_the_grant") {
    auto home = make_executor();
    auto pool = make_pool();
    auto held = pool->try_allocate(mib);
    sluice::stop_source source;
    outcomes out;
    start(request(*pool, mib, purpose::general, "granted", out), *home, source.token());
    sluice::sync_wait(*home, let_others_run());
    held->reset();
    source.request_stop(); // before the granted task has run again
    sluice::sync_wait(*home, let_others_run());
    CHECK(out.order == strings{"granted"});
}

TEST_CASE("Pool.allocation_and_release_never_touch_the_heap") {
    auto home = make_executor();
    auto pool = make_pool();
    const auto body = [](memory_pool& from) -> task<std::uint64_t> {
        const std::uint64_t before = sluice::testing::heap_allocations();
        for (std::size_t i = 0; i < 1000; ++i) {
            auto a = co_await from.allocate(1 + i * 700);
            auto b = co_await from.allocate(1 + i * 100, purpose::receive);
            auto c = from.try_allocate(4096);
            if (!a || !b || !c) co_return 1000;
        }
        co_return sluice::testing::heap_allocations() - before;
    };
    CHECK(sluice::sync_wait(*home, body(*pool)) == 0);
    const std::uint64_t before = sluice::testing::heap_allocations();
    CHECK(std::make_unique<int>(7) != nullptr);
    CHECK(sluice::testing::heap_allocations() > before); // the counter counts
}

TEST_CASE("Pool.waiting_and_being_served_never_touch_the_heap") {
    auto home = make_executor();
    auto pool = make_pool();
    auto held = pool->try_allocate(mib);
    outcomes out;
    out.order.reserve(4);
    out.held.reserve(4);
    for (int i = 0; i < 4; ++i) start(request(*pool, 512 * kib, purpose::receive, "", out), *home);
    sluice::sync_wait(*home, let_others_run());
    out.held.clear();
    const auto body = [](pooled_buffer& first, outcomes& others) -> task<std::uint64_t> {
        co_await sluice::yield();
        const std::uint64_t before = sluice::testing::heap_allocations();
        first.reset();
        for (int i = 0; i < 4; ++i) co_await sluice::yield();
        const std::uint64_t used = sluice::testing::heap_allocations() - before;
        co_return others.order.size() == 4 ? used : 1000;
    };
    CHECK(sluice::sync_wait(*home, body(*held, out)) == 0);
}

TEST_CASE("Pool.a_moved_lease_gives_back_once") {
    auto pool = make_pool();
    auto made = pool->try_allocate(4096);
    pooled_buffer a = std::move(*made);
    pooled_buffer b = std::move(a);
    CHECK_FALSE(static_cast<bool>(a));
    CHECK(pool->occupancy().leases == 1);
    auto other = pool->try_allocate(8192);
    b = std::move(*other);
    CHECK(pool->occupancy().leases == 1);
    CHECK(pool->occupancy().used_bytes == 8192);
    b.reset();
    b.reset();
    CHECK(pool->occupancy().leases == 0);
    CHECK(b.data() == nullptr);
}

TEST_CASE("Pool.names_the_option_that_is_wrong") {
    const auto check = [](sluice::pool_options options, const char* text) {
        const auto made = memory_pool::create(options);
        REQUIRE_FALSE(made);
        CHECK(made.error() == sluice::condition::invalid);
        INFO(made.error().message());
        CHECK(made.error().message().find(text) != std::string::npos);
    };
    check({.size_bytes = 2 * mib - 1}, "pool_options.size_bytes = 2097151, allowed is 2097152..1099511627776");
    check({.size_bytes = (std::size_t{1} << 40) + 1}, "pool_options.size_bytes = 1099511627777");
    check({.size_bytes = 2 * mib, .receive_reserve_bytes = 2 * mib},
          "pool_options.receive_reserve_bytes = 2097152, allowed is 0 (one eighth of the pool) or 1..2093056");
}

TEST_CASE("Pool.without_huge_pages_falls_back_with_one_line_or_fails_with_the_remedy") {
    strings lines;
    const auto take = [](void* context, sluice::log_level level, std::string_view text) noexcept {
        static_cast<strings*>(context)->push_back(std::string(sluice::to_string(level)) + ": " + std::string(text));
    };
    sluice::set_log_level(sluice::log_level::info);
    sluice::set_log_handler(take, &lines);
    // More than is reserved on any machine that isn't set up for it; only address space until it is touched.
    auto automatic = memory_pool::create({.size_bytes = 512 * mib, .huge_pages = sluice::mode::automatic});
    auto off = memory_pool::create({.size_bytes = 2 * mib, .huge_pages = sluice::mode::off});
    sluice::set_log_handler(nullptr, nullptr);
    sluice::set_log_level(sluice::log_level::warning);
    REQUIRE(off);
    CHECK_FALSE((*off)->uses_huge_pages());
    REQUIRE(automatic);
    if ((*automatic)->uses_huge_pages()) SKIP("this machine has 512 MiB of huge pages reserved");
    REQUIRE(lines.size() == 1);
    INFO(lines[0]);
    CHECK(lines[0].find("info: memory pool: 256 huge pages of 2 MiB needed, ") == 0);
    CHECK(lines[0].find("vm.nr_hugepages=256; using 4 KiB pages") != std::string::npos);

    const auto required = memory_pool::create({.size_bytes = 512 * mib, .huge_pages = sluice::mode::require});
    REQUIRE_FALSE(required);
    CHECK(required.error() == sluice::condition::out_of_resources);
    CHECK(required.error().message().find("memory pool: 256 huge pages of 2 MiB needed, ") == 0);
}

TEST_CASE("Pool.destroying_it_with_leases_out_stops_the_process_and_says_how_many") {
    CHECK_BREAKS_CONTRACT("destroyed while 2 leases of 12288 bytes are out",
                          auto pool = std::move(memory_pool::create({.size_bytes = 2 * mib})).value();
                          auto a = pool->try_allocate(1); auto b = pool->try_allocate(8192); pool.reset());
}

TEST_CASE("Pool.under_AddressSanitizer_touching_memory_that_is_not_leased_stops_the_process") {
#ifdef SLUICE_HAS_POISON
    const auto after_release = sluice::testing::die_in_child(+[] {
        auto pool = std::move(memory_pool::create({.size_bytes = 2 * mib})).value();
        auto lease = std::move(pool->try_allocate(4096)).value();
        volatile std::byte* const kept = lease.data();
        *kept = std::byte{1};
        lease.reset();
        *kept = std::byte{2};
    });
    CHECK(after_release.errors.find("use-after-poison") != std::string::npos);
    const auto past_the_end = sluice::testing::die_in_child(+[] {
        auto pool = std::move(memory_pool::create({.size_bytes = 2 * mib})).value();
        auto lease = std::move(pool->try_allocate(100)).value();
        volatile std::byte* const end = lease.data() + 100;
        *end = std::byte{1};
    });
    CHECK(past_the_end.errors.find("use-after-poison") != std::string::npos);
#else
    SKIP("built without AddressSanitizer");
#endif
}

TEST_CASE("Pool.its_memory_is_not_inherited_by_a_child") {
    const auto end = sluice::testing::die_in_child(+[] {
        auto pool = std::move(memory_pool::create({.size_bytes = 2 * mib})).value();
        const void* const base = pool->registration().base;
        const pid_t child = fork();
        if (child == 0) {
            unsigned char resident = 0;
            _exit(mincore(const_cast<void*>(base), 4096, &resident) != 0 && errno == ENOMEM ? 7 : 1); // not mapped
        }
        int status = 0;
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    });
    CHECK(end.exit_status == 7);
}
