#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/when_all.hpp>

#include "tests/net/tcp_pair.hpp"
#include "tests/support/run.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

task<void> send_sizes(connection& conn, std::vector<std::size_t> sizes) {
    std::uint8_t seed = 0;
    for (const std::size_t size : sizes) {
        memory message(size, ++seed);
        auto sent = co_await conn.send(message);
        REQUIRE(sent);
    }
}

task<void> receive_sizes(connection& conn, std::vector<std::size_t> sizes) {
    std::uint8_t seed = 0;
    for (const std::size_t size : sizes) {
        memory into(size, 200);
        auto got = co_await conn.receive(into);
        REQUIRE(got);
        CHECK(got->size_bytes == size);
        CHECK_FALSE(got->immediate);
        CHECK(into.holds(++seed));
    }
}

task<void> exchange(std::vector<std::size_t> sizes, pair_options options) {
    executor& home = co_await this_executor();
    connected_pair pair(home, options);
    co_await when_all(send_sizes(pair.a, sizes), receive_sizes(pair.b, sizes));
    CHECK(pair.a.stats().send.operations == sizes.size());
    CHECK(pair.b.stats().receive.operations == sizes.size());
    co_await when_all(receive_sizes(pair.a, sizes), send_sizes(pair.b, sizes));
}

/// Starts a send and tells when it has ended.
task<void> send_and_note(connection& conn, const_region_view message, std::vector<int>& ended, int name) {
    auto sent = co_await conn.send(message);
    REQUIRE(sent);
    ended.push_back(name);
}

} // namespace

TEST_CASE("Tcp_messages.arrive_in_order_at_every_size") {
    const std::vector<std::size_t> sizes{0, 1, 4095, 4096, 4097, 0, 64 * 1024, 5, (1 << 20) + 7, 4096, 3 << 20, 1};
    run(exchange(sizes, {}));
    run(exchange(sizes, {.receive_credits = 1}));
    run(exchange(sizes, {.lanes = 3}));
}

TEST_CASE("Tcp_messages.a_thousand_small_ones_need_few_system_calls") {
    const auto home = make_executor();
    connected_pair pair(*home, {.receive_credits = 1000});
    const auto body = [](connection& a, connection& b, executor& on) -> task<std::uint64_t> {
        memory out(64, 5);
        memory in(64, 6);
        const std::uint64_t before = on.stats().operations_started;
        std::vector<int> ended;
        scope senders;
        for (int i = 0; i < 1000; ++i) senders.spawn(send_and_note(a, out, ended, i));
        for (int i = 0; i < 1000; ++i) {
            auto got = co_await b.receive(in);
            REQUIRE(got);
        }
        auto joined = co_await senders.join();
        REQUIRE(joined);
        CHECK(ended.size() == 1000);
        co_return on.stats().operations_started - before;
    };
    // 48 frames fit into one send, 34 into one receive.
    CHECK(sync_wait(*home, body(pair.a, pair.b, *home)) < 80);
}

TEST_CASE("Tcp_messages.a_sender_without_credit_waits_for_a_receive") {
    const auto home = make_executor();
    connected_pair pair(*home, {.receive_credits = 2});
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory m(10, 1);
        std::vector<int> ended;
        scope senders;
        for (int i = 0; i < 4; ++i) senders.spawn(send_and_note(a, m, ended, i));
        auto slept = co_await sleep_for(20ms);
        REQUIRE(slept);
        CHECK(ended == std::vector{0, 1});
        memory in(10, 0);
        for (int i = 0; i < 4; ++i) {
            auto got = co_await b.receive(in);
            REQUIRE(got);
        }
        auto joined = co_await senders.join();
        REQUIRE(joined);
        CHECK(ended == std::vector{0, 1, 2, 3});
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_messages.one_that_is_too_long_fails_its_receive_only") {
    const auto home = make_executor();
    connected_pair pair(*home, {.message_bytes_max = 100'000});
    const auto body = [](connection& a, connection& b) -> task<void> {
        for (const std::size_t size : {std::size_t{100}, std::size_t{50'000}}) {
            memory large(size, 1);
            memory small(10, 2);
            memory in(10, 3);
            auto results = co_await when_all(
                [](connection& c, const_region_view first, const_region_view second) -> task<void> {
                    auto one = co_await c.send(first);
                    REQUIRE(one);
                    auto two = co_await c.send(second);
                    REQUIRE(two);
                }(a, large, small),
                [](connection& c, memory& into) -> task<void> {
                    auto got = co_await c.receive(into);
                    REQUIRE_FALSE(got);
                    CHECK(got.error() == errc::message_too_long);
                    auto next = co_await c.receive(into);
                    REQUIRE(next);
                    CHECK(into.holds(2));
                }(b, in));
            static_cast<void>(results);
        }
        memory huge(100'001, 1);
        auto refused = co_await a.send(huge);
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == errc::message_too_long);
        CHECK(refused.error().message().find("100001") != std::string::npos);
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_messages.an_immediate_comes_after_its_bytes_and_in_order_with_messages") {
    const auto home = make_executor();
    connected_pair pair(*home, {.receive_credits = 3});
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory theirs(2 << 20, 1);
        auto shared = co_await b.share(theirs, access::remote_write);
        REQUIRE(shared);
        const auto sender = [](connection& c, remote_region to) -> task<void> {
            memory from(2 << 20, 9);
            memory word(8, 4);
            for (std::uint32_t i = 0; i < 5; ++i) {
                auto written = co_await c.write_with_immediate(to, from, 100 + i);
                REQUIRE(written);
                auto sent = co_await c.send(word);
                REQUIRE(sent);
                auto small = co_await c.write_with_immediate(to.first(10), from.view().first(10), 200 + i);
                REQUIRE(small);
            }
        };
        const auto receiver = [](connection& c, memory& shared_memory) -> task<void> {
            memory in(8, 0);
            for (std::uint32_t i = 0; i < 5; ++i) {
                auto first = co_await c.receive(in);
                REQUIRE(first);
                REQUIRE(first->immediate);
                CHECK(*first->immediate == 100 + i);
                CHECK(first->size_bytes == 2 << 20);
                CHECK(shared_memory.holds(9));
                auto second = co_await c.receive(in);
                REQUIRE(second);
                CHECK_FALSE(second->immediate);
                CHECK(in.holds(4));
                auto third = co_await c.receive(in);
                REQUIRE(third);
                REQUIRE(third->immediate);
                CHECK(*third->immediate == 200 + i);
                CHECK(third->size_bytes == 10);
            }
        };
        co_await when_all(sender(a, shared->description()), receiver(b, theirs));
        // A refused one is received by nobody.
        memory from(8, 9);
        remote_region wrong = shared->description();
        wrong.key ^= 1;
        auto refused = co_await a.write_with_immediate(wrong.first(8), from, 1);
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == condition::access_denied);
        auto sent = co_await a.send(from);
        REQUIRE(sent);
        memory in(8, 0);
        auto got = co_await b.receive(in);
        REQUIRE(got);
        CHECK_FALSE(got->immediate);
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_messages.values_travel_as_messages") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory m(4096, 1);
        auto shared = co_await a.share(m, access::remote_read);
        REQUIRE(shared);
        auto first = co_await a.send(shared->description());
        REQUIRE(first);
        auto second = co_await a.send(std::uint64_t{77});
        REQUIRE(second);
        auto region = co_await b.receive<remote_region>();
        REQUIRE(region);
        CHECK(*region == shared->description());
        auto wrong = co_await b.receive<std::uint32_t>();
        REQUIRE_FALSE(wrong);
        CHECK(wrong.error() == errc::message_too_long);
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_messages.a_canceled_receive_loses_no_message") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory in(10, 0);
        auto late = co_await b.receive(in, {.deadline = 5ms});
        REQUIRE_FALSE(late);
        CHECK(late.error() == errc::deadline_exceeded);
        memory out(10, 7);
        auto sent = co_await a.send(out);
        REQUIRE(sent);
        auto got = co_await b.receive(in);
        REQUIRE(got);
        CHECK(in.holds(7));
        // A large one that its sender gives up goes to nobody, and the receive that waits gets the next.
        memory large(1 << 20, 1);
        auto gone = co_await a.send(large, {.deadline = 5ms});
        REQUIRE_FALSE(gone);
        CHECK(gone.error() == errc::deadline_exceeded);
        auto again = co_await a.send(out);
        REQUIRE(again);
        memory wide(1 << 20, 0);
        auto next = co_await b.receive(wide);
        REQUIRE(next);
        CHECK(next->size_bytes == 10);
        CHECK(std::equal(out.data(), out.data() + 10, wide.data()));
    };
    sync_wait(*home, body(pair.a, pair.b));
}

namespace {

template <class T>
concept can_send = requires(connection& c, T value) { c.send(value); };
template <class T>
concept can_receive = requires(connection& c) { c.receive<T>(); };
struct header {
    std::uint32_t magic;
    std::array<char, 12> name;
};
template <class T>
constexpr bool travels = can_send<T> && can_receive<T>;
template <class T>
constexpr bool stays = !can_send<T> && !can_receive<T>;

} // namespace

TEST_CASE("Tcp_messages.what_only_points_at_bytes_does_not_compile") {
    STATIC_REQUIRE(travels<int>);
    STATIC_REQUIRE(travels<header>);
    STATIC_REQUIRE(travels<std::array<header, 3>>);
    STATIC_REQUIRE(travels<std::array<std::array<int, 2>, 2>>);
    STATIC_REQUIRE(travels<remote_region>);
    STATIC_REQUIRE(stays<std::string_view>);
    STATIC_REQUIRE(stays<std::span<const std::byte>>);
    STATIC_REQUIRE(stays<std::span<int, 4>>);
    STATIC_REQUIRE(stays<std::initializer_list<int>>);
    STATIC_REQUIRE(stays<std::ranges::subrange<const int*>>);
    STATIC_REQUIRE(stays<std::ranges::ref_view<std::vector<int>>>);
    STATIC_REQUIRE(stays<std::array<std::string_view, 2>>);
    STATIC_REQUIRE(stays<std::array<const char*, 2>>);
    STATIC_REQUIRE(stays<const char*>);
    STATIC_REQUIRE(stays<std::nullptr_t>);
    STATIC_REQUIRE(stays<int header::*>);
    STATIC_REQUIRE(stays<std::reference_wrapper<int>>);
    STATIC_REQUIRE(stays<std::string>);
    STATIC_REQUIRE(!can_receive<region_view>);
    STATIC_REQUIRE(!can_receive<const_region_view>);
}
