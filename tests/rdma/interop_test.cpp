// Our connections and a peer that is written on bare rdma_cm and verbs, each in both roles: what both say and do.
#include "tests/conformance/buffer.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace sluice::rdma::testing {

namespace {

using bare::frame;
using conformance::buffer;
using conformance::must;
using conformance::must_fail;

constexpr std::size_t large_bytes = 100'000;

#define FOR_BOTH_ROLES(NAME)                                                                                           \
    const role NAME = GENERATE(role::client, role::server);                                                            \
    INFO(to_string(NAME))

/// All fields of a frame but those that give slots and credits back, which travel on any.
void check_frame(const frame& seen, frame expected) {
    expected.slots = seen.slots;
    expected.credits = seen.credits;
    expected.payload_bytes = static_cast<std::uint16_t>(expected.payload.size());
    const bare::bytes is = encode(seen);
    const bare::bytes should_be = encode(expected);
    REQUIRE(is.size() == should_be.size());
    const auto [at, other] = std::ranges::mismatch(is, should_be);
    INFO("the first byte that differs is number " << at - is.begin());
    CHECK(at == is.end());
}

void check_bytes(std::span<const std::byte> seen, std::span<const std::byte> expected) {
    REQUIRE(seen.size() == expected.size());
    const auto [at, other] = std::ranges::mismatch(seen, expected);
    INFO("the first byte that differs is number " << at - seen.begin());
    CHECK(at == seen.end());
}

task<void> does_nothing(runtime&, connection&) { co_return; }

// ---- the handshake ----

/// A greeting, byte by byte, and zeros after it.
void check_greeting(std::span<const std::byte> seen, bare::hello expected) {
    REQUIRE(seen.size() >= bare::hello::length);
    expected.owner = bare::parse_hello(seen).owner; // of its own choice
    CHECK(expected.owner != 0);
    check_bytes(seen.first(bare::hello::length), encode(expected));
    const std::size_t end = (expected.capabilities & 2) != 0 ? bare::hello::length_with_witness : bare::hello::length;
    REQUIRE(seen.size() >= end);
    CHECK(std::ranges::all_of(seen.subspan(end), [](std::byte b) { return b == std::byte{0}; }));
}

} // namespace

TEST_CASE("Interoperation.our_acceptance_is_the_smaller_of_both_limits_byte_by_byte") {
    const bool atomics = GENERATE(false, true);
    meeting with;
    with.hello.capabilities = atomics ? 1 : 0;
    with.hello.lanes = 3; // the listener allows one
    with.hello.credits = 7;
    with.hello.operations = 5;
    with.hello.message_bytes = 50'000;
    meet(
        role::client, does_nothing,
        [&](bare::peer& p) {
            bare::hello expected = answer(with.hello, with.hello);
            expected.lanes = 1;
            expected.slots = 16;
            expected.capabilities = atomics && p.has_atomics() ? 1 : p.is_iwarp() ? 2 : 0;
            expected.capabilities |= p.mtu_bits();
            check_greeting(p.greeted_with(), expected);
        },
        with);
}

TEST_CASE("Interoperation.our_request_is_what_the_options_say_byte_by_byte") {
    std::vector<std::array<std::uint8_t, 16>> connections;
    for (int i = 0; i < 2; ++i) {
        meeting with;
        with.ours.receive_credits = 9;
        with.ours.operations_in_flight = 77;
        with.ours.message_bytes_max = 123'456;
        meet(
            role::server, does_nothing,
            [&](bare::peer& p) {
                bare::hello expected;
                expected.capabilities = p.has_atomics() ? 1 : p.is_iwarp() ? 2 : 0;
                expected.capabilities |= p.mtu_bits();
                expected.slots = 16;
                expected.credits = 9;
                expected.operations = 77;
                expected.message_bytes = 123'456;
                expected.connection = bare::parse_hello(p.greeted_with()).connection; // random
                check_greeting(p.greeted_with(), expected);
                connections.push_back(expected.connection);
            },
            with);
    }
    CHECK(connections[0] != connections[1]);
}

// ---- messages ----

namespace {

constexpr std::size_t small_sizes[] = {0, 1, 11, 64, 65, 4095, 4096};

/// Sends each message back.
task<void> echoes(runtime&, connection& c) {
    buffer b(4096);
    for (const std::size_t size : small_sizes) {
        const received got = must(co_await c.receive(b));
        VERIFY_EQUAL(got.size_bytes, size);
        VERIFY(!got.immediate);
        must(co_await c.send(b.first(size)));
    }
    VERIFY_EQUAL(c.stats().send.bytes(path::rdma), std::uint64_t{0} + 1 + 11 + 64 + 65 + 4095 + 4096);
}

} // namespace

TEST_CASE("Interoperation.small_messages_go_both_ways") {
    FOR_BOTH_ROLES(bare);
    meet(bare, echoes, [](bare::peer& p) {
        for (const std::size_t size : small_sizes) {
            const bare::bytes message = bare::pattern(size, 1);
            p.send(bare::message_of(message));
            check_frame(p.receive(frame::message), bare::message_of(message));
        }
    });
}

namespace {

task<void> takes_a_large_one(runtime&, connection& c) {
    buffer b(large_bytes + 1);
    const received got = must(co_await c.receive(b));
    VERIFY_EQUAL(got.size_bytes, large_bytes);
    VERIFY(std::ranges::equal(b.bytes().first(large_bytes), bare::pattern(large_bytes, 2)));
}

task<void> sends_a_large_one(runtime&, connection& c) {
    buffer b(large_bytes);
    std::ranges::copy(bare::pattern(large_bytes, 3), b.data());
    must(co_await c.send(b));
    VERIFY_EQUAL(c.stats().send.bytes(path::rdma), large_bytes);
}

task<void> has_too_little_room(runtime&, connection& c) {
    buffer b(large_bytes - 1);
    must_fail(co_await c.receive(b), errc::message_too_long);
    const received next = must(co_await c.receive(b));
    VERIFY_EQUAL(next.size_bytes, std::size_t{4});
}

} // namespace

TEST_CASE("Interoperation.a_large_message_is_offered_accepted_and_sent_in_fragments") {
    FOR_BOTH_ROLES(bare);
    SECTION("from the bare end") {
        meet(bare, takes_a_large_one, [](bare::peer& p) {
            const bare::bytes message = bare::pattern(large_bytes, 2);
            p.send({.type = frame::offer, .size = large_bytes});
            check_frame(p.receive(frame::accept), {.type = frame::accept, .size = large_bytes});
            for (std::size_t at = 0; at < large_bytes; at += frame::payload_most)
                p.send({.type = frame::fragment,
                        .payload = bare::part(message, at, std::min(frame::payload_most, large_bytes - at))});
        });
    }
    SECTION("from ours") {
        meet(bare, sends_a_large_one, [](bare::peer& p) {
            check_frame(p.receive(frame::offer), {.type = frame::offer, .size = large_bytes});
            p.send({.type = frame::accept, .size = large_bytes});
            bare::bytes message;
            while (message.size() < large_bytes) {
                const frame f = p.receive(frame::fragment);
                check_frame(f, {.type = frame::fragment, .payload = f.payload});
                message.insert(message.end(), f.payload.begin(), f.payload.end());
            }
            check_bytes(message, bare::pattern(large_bytes, 3));
        });
    }
    SECTION("nobody wants it") {
        meet(bare, has_too_little_room, [](bare::peer& p) {
            p.send({.type = frame::offer, .size = large_bytes});
            check_frame(p.receive(frame::accept), {.type = frame::accept, .size = 0});
            p.send(bare::message_of("next"));
        });
    }
}

namespace {

/// Receives everything, once it was told to by closing the gate of `until`.
task<void> receives(connection& c, int messages) {
    buffer b(4096);
    for (int i = 0; i < messages; ++i) must(co_await c.receive(b));
}

} // namespace

TEST_CASE("Interoperation.slots_come_back_at_once_and_credits_when_a_receive_took_the_message") {
    FOR_BOTH_ROLES(bare);
    meeting with;
    with.hello.credits = 32;
    std::promise<void> sent;
    auto all_sent = sent.get_future().share();
    const our_part ours = [all_sent](runtime&, connection& c) -> task<void> {
        return [](connection& mine, std::shared_future<void> until) -> task<void> {
            // Without a receive: what comes is kept, and its slots go back.
            while (until.wait_for(std::chrono::seconds(0)) != std::future_status::ready) co_await yield();
            co_await receives(mine, 32);
        }(c, all_sent);
    };
    meet(
        bare, ours,
        [&](bare::peer& p) {
            CHECK(p.slots() + (bare == role::client ? 1U : 0U) == 16); // `ready` has cost one
            CHECK(p.credits() == 32);
            for (int i = 0; i < 32; ++i) p.send(bare::message_of("message")); // waits for slots, so they come back
            CHECK(p.credits() == 0);
            while (p.slots() <= 8) p.wait_for_frame();
            CHECK(p.credits() == 0);
            sent.set_value();
            while (p.credits() <= 24) p.wait_for_frame();
            CHECK(p.credits() <= 32);
            CHECK(p.slots() <= 16);
        },
        with);
}

// ---- shared memory ----

namespace {

constexpr std::size_t shared_bytes = 3 * 4096 + 5;

task<void> shares(runtime&, connection& c) {
    buffer b(shared_bytes);
    std::ranges::copy(bare::pattern(shared_bytes, 4), b.data());
    auto shared = must(co_await c.share(b, access::remote_read | access::remote_write));
    must(co_await c.send(reinterpret_cast<std::uintptr_t>(b.data())));
    buffer word(8);
    must(co_await c.receive(word)); // the peer is through
    VERIFY(std::ranges::equal(b.bytes(), bare::pattern(shared_bytes, 5)));
    shared.revoke();
    must(co_await c.receive(word));
}

frame share_of(bare::memory& m, std::uint32_t generation) {
    return {.type = frame::shared,
            .access = 3,
            .number = generation,
            .key = m.rkey(),
            .size = m.data().size(),
            .address = m.address()};
}

bare::bytes description_of(bare::memory& m, std::uint32_t generation, std::uint64_t owner) {
    return encode(bare::region{.access = 3,
                               .generation = generation,
                               .address = m.address(),
                               .size = m.data().size(),
                               .key = m.rkey(),
                               .owner = owner});
}

} // namespace

TEST_CASE("Interoperation.what_we_share_a_bare_peer_reads_and_writes") {
    FOR_BOTH_ROLES(bare);
    meet(bare, shares, [](bare::peer& p) {
        const frame shared = p.receive(frame::shared);
        CHECK(shared.key != 0);
        check_frame(shared, {.type = frame::shared,
                             .access = 3,
                             .number = shared.number,
                             .key = shared.key,
                             .size = shared_bytes,
                             .address = shared.address});
        p.send({.type = frame::shared_ack, .number = shared.number, .key = shared.key});
        const frame told = p.receive(frame::message);
        std::uint64_t address = 0;
        REQUIRE(told.payload.size() == sizeof address);
        std::memcpy(&address, told.payload.data(), sizeof address);
        CHECK(shared.address == address);
        bare::memory m = p.make_memory(shared_bytes, IBV_ACCESS_LOCAL_WRITE);
        REQUIRE(p.read(shared.address, shared.key, m) == IBV_WC_SUCCESS);
        check_bytes(m.data(), bare::pattern(shared_bytes, 4));
        std::ranges::copy(bare::pattern(shared_bytes, 5), m.data().begin());
        REQUIRE(p.write(shared.address, shared.key, m) == IBV_WC_SUCCESS);
        p.send(bare::message_of("done"));
        check_frame(p.receive(frame::revoked), {.type = frame::revoked, .number = shared.number, .key = shared.key});
        p.send(bare::message_of("bye"));
    });
}

namespace {

task<void> uses_what_is_shared(runtime&, connection& c) {
    buffer b(shared_bytes);
    const remote_region there = must(co_await c.receive<remote_region>());
    must(co_await c.read(there, b));
    VERIFY(std::ranges::equal(b.bytes(), bare::pattern(shared_bytes, 6)));
    std::ranges::copy(bare::pattern(shared_bytes, 7), b.data());
    must(co_await c.write(there, b));
    must(co_await c.send(std::uint32_t{1}));
    must(co_await c.receive<char>()); // the peer has looked
    std::ranges::copy(bare::pattern(shared_bytes, 8), b.data());
    must(co_await c.write_with_immediate(there, b, 0xfeedf00d));
    const connection_stats s = c.stats();
    VERIFY_EQUAL(s.read.bytes(path::rdma), shared_bytes);
    VERIFY_EQUAL(s.write.bytes(path::rdma), 2 * shared_bytes);
    // What the peer took back is not even tried.
    must(co_await c.receive<char>());
    must_fail(co_await c.read(there, b), errc::access_denied);
    VERIFY(c.is_open());
}

} // namespace

TEST_CASE("Interoperation.what_a_bare_peer_shares_we_read_and_write") {
    FOR_BOTH_ROLES(bare);
    meeting with;
    meet(
        bare, uses_what_is_shared,
        [&](bare::peer& p) {
            bare::memory m =
                p.make_memory(shared_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
            std::ranges::copy(bare::pattern(shared_bytes, 6), m.data().begin());
            p.send(share_of(m, 41));
            check_frame(p.receive(frame::shared_ack), {.type = frame::shared_ack, .number = 41, .key = m.rkey()});
            p.send(bare::message_of(description_of(m, 41, with.hello.owner)));
            static_cast<void>(p.receive(frame::message));
            check_bytes(m.data(), bare::pattern(shared_bytes, 7));
            p.send(bare::message_of("x"));
            check_frame(p.receive(frame::immediate),
                        {.type = frame::immediate, .number = 0xfeedf00d, .size = shared_bytes});
            check_bytes(m.data(), bare::pattern(shared_bytes, 8));
            p.send({.type = frame::revoked, .number = 41, .key = m.rkey()});
            p.send(bare::message_of("y"));
        },
        with);
}

namespace {

task<void> takes_an_immediate(runtime&, connection& c) {
    buffer b(shared_bytes);
    auto shared = must(co_await c.share(b, access::remote_write));
    buffer nothing(1);
    const received got = must(co_await c.receive(nothing));
    VERIFY(got.immediate);
    VERIFY_EQUAL(*got.immediate, 4711U);
    VERIFY_EQUAL(got.size_bytes, shared_bytes);
    VERIFY(std::ranges::equal(b.bytes(), bare::pattern(shared_bytes, 9)));
    // Until the peer has said that the share is known to be gone.
    shared.revoke();
    must(co_await c.receive<char>());
}

} // namespace

TEST_CASE("Interoperation.a_write_and_its_immediate_from_a_bare_peer_are_received_together") {
    FOR_BOTH_ROLES(bare);
    meet(bare, takes_an_immediate, [](bare::peer& p) {
        const frame shared = p.receive(frame::shared);
        CHECK(shared.access == 2);
        p.send({.type = frame::shared_ack, .number = shared.number, .key = shared.key});
        bare::memory m = p.make_memory(shared_bytes, IBV_ACCESS_LOCAL_WRITE);
        std::ranges::copy(bare::pattern(shared_bytes, 9), m.data().begin());
        REQUIRE(p.write(shared.address, shared.key, m) == IBV_WC_SUCCESS);
        p.send({.type = frame::immediate, .number = 4711, .size = shared_bytes});
        static_cast<void>(p.receive(frame::revoked));
        p.send(bare::message_of("z"));
    });
}

// ---- goodbyes ----

namespace {

task<void> waits_for_the_end(runtime&, connection& c) {
    must(co_await c.closed());
    VERIFY(!c.is_open());
    must_fail(co_await c.send(std::uint32_t{1}), condition::closed);
}

task<void> loses_the_peer(runtime&, connection& c) {
    const auto sent = co_await c.send(std::uint32_t{1}); // so that it leaves after the connection was there
    if (!sent) must_fail(sent, condition::closed);       // over iWARP it leaves before it has answered our read
    must_fail(co_await c.closed(), condition::closed);
    VERIFY(!c.is_open());
}

} // namespace

TEST_CASE("Interoperation.a_bare_peer_says_goodbye_and_it_is_acknowledged") {
    FOR_BOTH_ROLES(bare);
    meet(bare, waits_for_the_end,
         [](bare::peer& p) {
             p.send({.type = frame::goodbye});
             check_frame(p.receive(frame::goodbye_ack), {.type = frame::goodbye_ack});
             p.disconnect();
         },
         {.ours_closes = false});
}

TEST_CASE("Interoperation.a_bare_peer_that_leaves_without_a_goodbye_is_an_error") {
    FOR_BOTH_ROLES(bare);
    meet(bare, loses_the_peer,
         [](bare::peer& p) {
             static_cast<void>(p.receive(frame::message));
             p.disconnect();
         },
         {.ours_closes = false});
}

} // namespace sluice::rdma::testing
