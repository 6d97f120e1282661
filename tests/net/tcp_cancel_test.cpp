#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/timeout.hpp>

#include "tests/net/raw_peer.hpp"
#include "tests/support/run.hpp"

#include <algorithm>
#include <cstring>

using namespace sluice;
using namespace sluice::net;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

constexpr operation_options soon{.deadline = 10ms};
constexpr std::size_t large = 32 << 20; // more than a socket buffers

using body = task<void> (*)(connection&, raw_peer&);

void play(body test, pair_options options = {}) {
    const auto home = make_executor();
    half_pair pair(*home, options);
    sync_wait(*home, test(pair.conn, pair.peer));
}

/// The connection still works: the stream is in step.
task<void> check_alive(connection& conn, raw_peer& peer) {
    memory into(100, 0);
    beside reading(do_read(conn, made_up(100), into));
    scope s;
    s.spawn(reading.run());
    frame request = co_await peer.receive();
    while (request.type == frame_type::credit || request.type == frame_type::cancel) request = co_await peer.receive();
    REQUIRE(request.type == frame_type::read);
    memory from(100, 55);
    co_await peer.send({.type = frame_type::reply, .id = request.id}, from.view().bytes());
    co_await peer.send({.type = frame_type::end, .id = request.id});
    auto joined = co_await s.join();
    REQUIRE(joined);
    CHECK(*reading.outcome);
    CHECK(into.holds(55));
}

/// Takes a write that was given up: its data, and the commit that says so.
task<std::uint64_t> take_given_up(raw_peer& peer, std::uint64_t id, const memory& original) {
    std::uint64_t right = 0;
    std::uint64_t zeros = 0;
    for (;;) {
        const frame f = co_await peer.receive();
        REQUIRE(f.id == id);
        if (f.type == frame_type::commit) {
            CHECK(f.status == frame_status::canceled);
            break;
        }
        REQUIRE(f.type == frame_type::data);
        for (std::size_t i = 0; i < peer.payload.size(); ++i) {
            if (peer.payload[i] == memory::pattern(f.address + i, 1)) ++right;
            else if (peer.payload[i] == std::byte{0}) ++zeros;
            else FAIL("a byte that is neither the original nor zero");
        }
    }
    static_cast<void>(original);
    CHECK(right > 0);
    CHECK(right + zeros < large);
    co_await peer.send({.type = frame_type::end, .status = frame_status::canceled, .id = id});
    co_return zeros;
}

} // namespace

TEST_CASE("Tcp_cancel.a_read_that_waits_for_its_answer") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory into(1000, 3);
        auto late = co_await conn.read(made_up(1000), into, soon);
        REQUIRE_FALSE(late);
        CHECK(late.error() == errc::deadline_exceeded);
        const frame request = co_await peer.receive(frame_type::read);
        const frame canceled = co_await peer.receive(frame_type::cancel);
        CHECK(canceled.id == request.id);
        // What comes now is thrown away.
        memory from(1000, 9);
        co_await peer.send({.type = frame_type::reply, .id = request.id}, from.view().bytes());
        co_await peer.send({.type = frame_type::end, .id = request.id});
        co_await check_alive(conn, peer);
        CHECK(into.holds(3));
        CHECK(conn.stats().read.failures == 1);
    });
}

TEST_CASE("Tcp_cancel.a_read_whose_bytes_are_coming_in") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory into(data_bytes, 3);
        memory from(data_bytes, 9);
        beside reading(do_read(conn, made_up(data_bytes), into, {.deadline = 100ms}));
        scope s;
        s.spawn(reading.run());
        const frame request = co_await peer.receive(frame_type::read);
        co_await peer.send_header({.type = frame_type::reply, .payload_bytes = data_bytes, .id = request.id});
        const auto bytes = std::span<const std::byte>(from.data(), data_bytes);
        co_await peer.send_bytes(bytes.first(100'000));
        auto joined = co_await s.join();
        REQUIRE(joined);
        REQUIRE_FALSE(*reading.outcome);
        CHECK(reading.outcome->error() == errc::deadline_exceeded);
        CHECK(std::memcmp(into.data(), from.data(), 100'000) == 0);
        into.fill(200); // it is ours again
        co_await peer.send_bytes(bytes.subspan(100'000));
        co_await peer.send({.type = frame_type::end, .id = request.id});
        co_await check_alive(conn, peer);
        CHECK(into.holds(200));
    });
}

TEST_CASE("Tcp_cancel.a_write_whose_bytes_are_going_out") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory from(large, 1);
        auto late = co_await conn.write(made_up(large), from, {.deadline = 50ms});
        REQUIRE_FALSE(late);
        CHECK(late.error() == errc::deadline_exceeded);
        from.fill(99); // ours again: none of this may be sent
        const frame request = co_await peer.receive(frame_type::write);
        CHECK(request.size == large);
        const auto zeros = co_await take_given_up(peer, request.id, from);
        CHECK(zeros > 0);
        co_await check_alive(conn, peer);
    });
}

TEST_CASE("Tcp_cancel.a_write_that_waits_for_its_answer") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory from(100, 1);
        auto late = co_await conn.write(made_up(100), from, soon);
        REQUIRE_FALSE(late);
        CHECK(late.error() == errc::deadline_exceeded);
        const frame request = co_await peer.receive(frame_type::write);
        co_await peer.send({.type = frame_type::end, .id = request.id});
        co_await check_alive(conn, peer);
    });
}

TEST_CASE("Tcp_cancel.small_writes_and_messages_behind_a_stalled_socket_keep_their_bytes") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory bulk(large, 1);
        memory small(300, 7);
        beside writing(do_write(conn, made_up(large), bulk, {.deadline = 300ms}));
        scope s;
        s.spawn(writing.run());
        const frame request = co_await peer.receive(frame_type::write);
        // The socket is full now, or soon; what comes next waits behind it.
        beside sending(do_send(conn, small, {.deadline = 100ms}));
        beside putting(do_write(conn, made_up(300), small, {.deadline = 100ms}));
        s.spawn(sending.run());
        s.spawn(putting.run());
        auto joined = co_await s.join();
        REQUIRE(joined);
        CHECK_FALSE(*writing.outcome);
        CHECK_FALSE(*sending.outcome);
        CHECK_FALSE(*putting.outcome);
        small.fill(99);
        bulk.fill(99);
        // Whatever of them is on the way is whole and unchanged.
        bool committed = false;
        while (!committed) {
            const frame f = co_await peer.receive();
            if (f.type == frame_type::commit) committed = true;
            if (f.type != frame_type::message && f.type != frame_type::write) continue;
            REQUIRE(peer.payload.size() == 300);
            for (std::size_t i = 0; i < 300; ++i) REQUIRE(peer.payload[i] == memory::pattern(i, 7));
        }
        co_await peer.send({.type = frame_type::end, .status = frame_status::canceled, .id = request.id});
        co_await check_alive(conn, peer);
    });
}

TEST_CASE("Tcp_cancel.a_large_send_at_each_stage") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory message(8 << 20, 1);
        // Offered, not accepted.
        auto first = co_await conn.send(message, soon);
        REQUIRE_FALSE(first);
        CHECK(first.error() == errc::deadline_exceeded);
        const frame offer = co_await peer.receive(frame_type::offer);
        const frame dropped = co_await peer.receive(frame_type::commit);
        CHECK(dropped.status == frame_status::canceled);
        CHECK(dropped.id == offer.id);
        co_await peer.send({.type = frame_type::accept, .id = offer.id}); // they cross
        co_await peer.send({.type = frame_type::end, .status = frame_status::canceled, .id = offer.id});
        // Accepted, its data on the way.
        beside sending(do_send(conn, message, {.deadline = 100ms}));
        scope s;
        s.spawn(sending.run());
        const frame again = co_await peer.receive(frame_type::offer);
        co_await peer.send({.type = frame_type::accept, .id = again.id});
        auto joined = co_await s.join();
        REQUIRE(joined);
        CHECK(sending.outcome->error() == errc::deadline_exceeded);
        message.fill(99);
        co_await take_given_up(peer, again.id, message);
        co_await check_alive(conn, peer);
    });
}

TEST_CASE("Tcp_cancel.a_receive_whose_bytes_are_coming_in") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory from(100'000, 9);
        memory into(100'000, 3);
        beside receiving(do_receive(conn, into, {.deadline = 100ms}));
        scope s;
        s.spawn(receiving.run());
        co_await peer.send({.type = frame_type::offer, .id = 5, .size = 100'000});
        const frame accepted = co_await peer.receive(frame_type::accept);
        CHECK(accepted.id == 5);
        const auto bytes = std::span<const std::byte>(from.data(), 100'000);
        co_await peer.send_header({.type = frame_type::data, .payload_bytes = 100'000, .id = 5});
        co_await peer.send_bytes(bytes.first(50'000));
        auto joined = co_await s.join();
        REQUIRE(joined);
        REQUIRE_FALSE(*receiving.outcome);
        CHECK(receiving.outcome->error() == errc::deadline_exceeded);
        into.fill(200);
        co_await peer.send_bytes(bytes.subspan(50'000));
        co_await peer.send({.type = frame_type::commit, .id = 5});
        const frame end = co_await peer.receive(frame_type::end);
        CHECK(end.id == 5);
        co_await check_alive(conn, peer);
        CHECK(into.holds(200));
    });
}

TEST_CASE("Tcp_cancel.what_waits_for_room_or_credit") {
    play(
        [](connection& conn, raw_peer& peer) -> task<void> {
            memory m(10, 1);
            beside first(do_read(conn, made_up(10), m, {.deadline = 60ms}));
            beside second(do_read(conn, made_up(10), m, soon));
            beside credited(do_send(conn, m));
            beside waiting(do_send(conn, m, soon));
            scope s;
            s.spawn(first.run());
            s.spawn(second.run());
            s.spawn(credited.run());
            s.spawn(waiting.run());
            auto joined = co_await s.join();
            REQUIRE(joined);
            CHECK(first.outcome->error() == errc::deadline_exceeded);
            CHECK(second.outcome->error() == errc::deadline_exceeded);
            CHECK(*credited.outcome);
            CHECK(waiting.outcome->error() == errc::deadline_exceeded);
            const frame request = co_await peer.receive(frame_type::read);
            co_await peer.receive(frame_type::message);
            co_await peer.receive(frame_type::cancel);
            co_await peer.send({.type = frame_type::end, .status = frame_status::canceled, .id = request.id});
            co_await peer.send({.type = frame_type::credit, .immediate = 1});
            co_await check_alive(conn, peer);
        },
        {.operations_in_flight = 1, .receive_credits = 1});
}

TEST_CASE("Tcp_cancel.a_stop_request_cancels_and_a_stopped_token_starts_nothing") {
    play([](connection& conn, raw_peer& peer) -> task<void> {
        memory into(10, 1);
        beside reading(do_read(conn, made_up(10), into));
        scope s;
        s.spawn(reading.run());
        co_await peer.receive(frame_type::read);
        s.request_stop();
        auto joined = co_await s.join();
        CHECK(reading.outcome->error() == errc::canceled);
        beside never(do_read(conn, made_up(10), into));
        s.spawn(never.run());
        joined = co_await s.join();
        CHECK(never.outcome->error() == errc::canceled);
        const frame canceled = co_await peer.receive(frame_type::cancel);
        co_await peer.send({.type = frame_type::end, .status = frame_status::canceled, .id = canceled.id});
        co_await check_alive(conn, peer);
    });
}
