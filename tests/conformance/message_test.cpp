#include <sluice/when_all.hpp>

#include "tests/conformance/pair.hpp"

#include <array>
#include <vector>

namespace sluice::conformance {

namespace {

constexpr std::size_t message_max = std::size_t{1} << 20;
// On both sides of every limit that a provider may have for messages that travel at once.
constexpr std::array<std::size_t, 12> sizes{0, 1, 100, 4095, 4096, 4097, 16384, 16385, 65536, 65537, 300'001, message_max};

task<void> sends_sizes(runtime&, connection& c) {
    buffer message(message_max);
    std::uint64_t seed = 0;
    for (int round = 0; round < 3; ++round) {
        for (const std::size_t size : sizes) {
            fill(message.bytes().first(size), ++seed);
            must(co_await c.send(message.first(size)));
            fill_with(message.bytes().first(size), std::byte{0xee}); // done means that the memory is free
        }
    }
    VERIFY_EQUAL(c.stats().send.operations, 3 * sizes.size());
    must(co_await c.receive<char>());
}

task<void> receives_sizes(runtime&, connection& c) {
    buffer message(message_max);
    std::uint64_t seed = 0;
    std::uint64_t total = 0;
    for (int round = 0; round < 3; ++round) {
        for (const std::size_t size : sizes) {
            fill_with(message.bytes(), std::byte{0xdd});
            const received got = must(co_await c.receive(message));
            VERIFY_EQUAL(got.size_bytes, size);
            VERIFY(!got.immediate.has_value());
            must_hold(message.bytes().first(size), ++seed);
            must_be_all(message.bytes().subspan(size), std::byte{0xdd});
            total += size;
        }
    }
    VERIFY_EQUAL(c.stats().receive.operations, 3 * sizes.size());
    VERIFY_EQUAL(c.stats().receive.bytes(c.path()), total);
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

constexpr std::size_t burst = 300;

/// Sizes that go this way and that way, so that one that overtakes another shows.
std::size_t size_in_burst(std::size_t i) { return i % 7 == 3 ? 20'000 + i : i % 5 == 0 ? 4096 : 8 + i; }

task<void> sends_burst(runtime&, connection& c) {
    std::vector<buffer> messages;
    scope running;
    for (std::size_t i = 0; i < burst; ++i) {
        messages.emplace_back(size_in_burst(i));
        fill(messages.back().bytes(), i);
    }
    for (const buffer& m : messages) running.spawn(send_task(c, m));
    must(co_await running.join());
    must(co_await c.receive<char>());
}

task<void> receives_burst_late(runtime&, connection& c) {
    buffer message(32'768);
    for (int i = 0; i < 50; ++i) co_await yield(); // so that the credits are used up first
    for (std::size_t i = 0; i < burst; ++i) {
        const received got = must(co_await c.receive(message));
        VERIFY_EQUAL(got.size_bytes, size_in_burst(i));
        must_hold(message.bytes().first(got.size_bytes), i);
    }
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

task<void> receives_burst_posted_before(runtime&, connection& c) {
    std::vector<buffer> into;
    std::vector<task<result<received>>> receives;
    for (std::size_t i = 0; i < burst; ++i) {
        into.emplace_back(32'768);
        receives.push_back(receive_task(c, into.back()));
    }
    auto all = co_await when_all(std::move(receives));
    for (std::size_t i = 0; i < burst; ++i) {
        VERIFY_EQUAL(must(std::move(all[i])).size_bytes, size_in_burst(i));
        must_hold(into[i].bytes().first(size_in_burst(i)), i);
    }
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

task<result<void>> echo_sender(connection& c, std::size_t count) {
    buffer message(20'000);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t size = i % 3 == 0 ? 20'000 : 64;
        fill(message.bytes().first(size), i);
        if (auto sent = co_await c.send(message.first(size)); !sent) co_return sent;
    }
    co_return result<void>{};
}

task<result<void>> echo_receiver(connection& c, std::size_t count) {
    buffer message(20'000);
    for (std::size_t i = 0; i < count; ++i) {
        auto got = co_await c.receive(message);
        if (!got) co_return std::move(got).error();
        VERIFY_EQUAL(got->size_bytes, i % 3 == 0 ? 20'000U : 64U);
        must_hold(message.bytes().first(got->size_bytes), i);
    }
    co_return result<void>{};
}

task<void> talks_both_ways(runtime&, connection& c) {
    constexpr std::size_t count = 400;
    auto both = co_await when_all(echo_sender(c, count), echo_receiver(c, count));
    must(std::get<0>(both));
    must(std::get<1>(both));
    VERIFY_EQUAL(c.stats().send.operations, count);
    VERIFY_EQUAL(c.stats().receive.operations, count);
}

task<void> sends_too_much(runtime&, connection& c) {
    VERIFY_EQUAL(c.capabilities().message_bytes_max, 10'000U);
    buffer message(20'000);
    fill(message.bytes(), 1);
    const auto refused = co_await c.send(message.first(10'001));
    must_name(must_fail(refused, errc::message_too_long), "10000");
    must(co_await c.send(message.first(10'000)));
    must(co_await c.send(message.first(5'000)));
    must(co_await c.send(message.first(100)));
    VERIFY_EQUAL(c.stats().send.failures, 1U);
    must(co_await c.receive<char>());
}

task<void> receives_into_too_little(runtime&, connection& c) {
    buffer memory(10'000);
    fill_with(memory.bytes(), std::byte{0xee});
    const auto large = co_await c.receive(memory.first(9'999)); // larger than 4 KiB: not sent before it is asked for
    must_name(must_fail(large, errc::message_too_long), "10000");
    const auto small = co_await c.receive(memory.first(50));
    must_name(must_fail(small, errc::message_too_long), "5000");
    must_be_all(memory.bytes(), std::byte{0xee});
    VERIFY_EQUAL(must(co_await c.receive(memory)).size_bytes, 100U); // both are gone, the next one is there
    must_hold(memory.bytes().first(100), 1);
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

struct header {
    std::uint32_t a = 0;
    std::uint64_t b = 0;
};

task<void> sends_values(runtime&, connection& c) {
    must(co_await c.send(header{.a = 1, .b = 2}));
    must(co_await c.send(std::uint16_t{7}));
    must(co_await c.send(header{.a = 3, .b = 4}));
    remote_region described;
    described.size_bytes = 5;
    described.key = 6;
    must(co_await c.send(described));
    must(co_await c.receive<char>());
}

task<void> receives_values(runtime&, connection& c) {
    const header first = must(co_await c.receive<header>());
    VERIFY(first.a == 1 && first.b == 2);
    must_name(must_fail(co_await c.receive<header>(), condition::protocol_error), "2 bytes");
    const header third = must(co_await c.receive<header>());
    VERIFY(third.a == 3 && third.b == 4);
    const remote_region described = must(co_await c.receive<remote_region>());
    VERIFY(described.size_bytes == 5 && described.key == 6);
    must(co_await c.send(char{1}));
    must(co_await c.closed());
}

} // namespace

CONFORMANCE_TEST("Message.of_every_size_arrives_whole", p) { run_pair(p, sends_sizes, receives_sizes); }

CONFORMANCE_TEST("Message.order_is_kept_when_credits_run_out", p) {
    pair_options options;
    options.server.receive_credits = 4;
    run_pair(p, sends_burst, receives_burst_late, options);
}

CONFORMANCE_TEST("Message.order_is_kept_with_one_credit", p) {
    pair_options options;
    options.server.receive_credits = 1;
    run_pair(p, sends_burst, receives_burst_late, options);
}

CONFORMANCE_TEST("Message.order_is_kept_into_receives_that_wait", p) {
    run_pair(p, sends_burst, receives_burst_posted_before);
}

CONFORMANCE_TEST("Message.both_directions_flow_at_once", p) {
    pair_options options;
    options.client.receive_credits = 3;
    options.server.receive_credits = 2;
    run_pair(p, talks_both_ways, talks_both_ways, options);
}

CONFORMANCE_TEST("Message.too_long_fails_and_the_next_one_arrives", p) {
    pair_options options;
    options.client.message_bytes_max = 20'000;
    options.server.message_bytes_max = 10'000;
    run_pair(p, sends_too_much, receives_into_too_little, options);
}

CONFORMANCE_TEST("Message.values_keep_their_type_and_length", p) { run_pair(p, sends_values, receives_values); }

} // namespace sluice::conformance
