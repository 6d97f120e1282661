#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/when_all.hpp>

#include "tests/net/raw_peer.hpp"
#include "tests/support/run.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <random>
#include <string>

using namespace sluice;
using namespace sluice::net;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

bool says(const error& e, std::string_view text) { return e.message().find(text) != std::string::npos; }

/// Two ends over the loopback interface.
std::pair<detail::unique_fd, detail::unique_fd> tcp_socket_pair() {
    detail::unique_fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof here;
    REQUIRE(::bind(listening.get(), reinterpret_cast<sockaddr*>(&here), length) == 0);
    REQUIRE(::listen(listening.get(), 1) == 0);
    REQUIRE(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&here), &length) == 0);
    detail::unique_fd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(one.get(), reinterpret_cast<sockaddr*>(&here), length) == 0);
    detail::unique_fd other(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(other);
    return {std::move(one), std::move(other)};
}

task<result<void>> do_close(connection& c) { co_return co_await c.close(); }
task<result<void>> do_closed(connection& c) { co_return co_await c.closed(); }

} // namespace

TEST_CASE("Tcp_closing.what_was_sent_before_arrives_and_then_closed") {
    for (const std::uint32_t lanes : {1U, 3U}) {
        const auto home = make_executor();
        connected_pair pair(*home, {.lanes = lanes});
        const auto body = [](connection& a, connection& b) -> task<void> {
            memory small(100, 1);
            memory theirs(8 << 20, 2);
            memory mine(8 << 20, 3);
            auto shared = co_await b.share(theirs, access::remote_write);
            REQUIRE(shared);
            beside one(do_send(a, small));
            beside two(do_write(a, shared->description(), mine));
            beside three(do_send(a, small));
            beside closing(do_close(a));
            scope s;
            s.spawn(one.run());
            s.spawn(two.run());
            s.spawn(three.run());
            s.spawn(closing.run());
            auto gone = co_await b.closed();
            CHECK(gone);
            auto joined = co_await s.join();
            REQUIRE(joined);
            CHECK(*one.outcome);
            CHECK(*two.outcome);
            CHECK(*three.outcome);
            CHECK(*closing.outcome);
            CHECK(theirs.holds(3));
            CHECK_FALSE(a.is_open());
            CHECK_FALSE(b.is_open());
            for (int i = 0; i < 2; ++i) {
                memory in(100, 0);
                auto got = co_await b.receive(in);
                REQUIRE(got);
                CHECK(in.holds(1));
            }
            memory in(100, 0);
            auto none = co_await b.receive(in);
            REQUIRE_FALSE(none);
            CHECK(none.error() == errc::closed);
            auto late = co_await a.send(small);
            REQUIRE_FALSE(late);
            CHECK(late.error() == errc::closed);
            CHECK(says(late.error(), "this end closed"));
            auto answer = co_await b.send(small);
            REQUIRE_FALSE(answer);
            CHECK(says(answer.error(), "the peer tcp://@there closed"));
            auto again = co_await a.close();
            CHECK(again);
            auto other = co_await b.close();
            CHECK(other);
        };
        sync_wait(*home, body(pair.a, pair.b));
    }
}

TEST_CASE("Tcp_closing.both_sides_at_once") {
    for (const std::uint32_t lanes : {1U, 4U}) {
        const auto home = make_executor();
        connected_pair pair(*home, {.lanes = lanes});
        const auto body = [](connection& a, connection& b) -> task<void> {
            auto results = co_await when_all(do_close(a), do_close(b), do_closed(a), do_closed(b));
            CHECK(std::get<0>(results));
            CHECK(std::get<1>(results));
            CHECK(std::get<2>(results));
            CHECK(std::get<3>(results));
        };
        sync_wait(*home, body(pair.a, pair.b));
    }
}

TEST_CASE("Tcp_closing.operations_in_flight_end_with_closed_on_both_sides") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a, connection& b) -> task<void> {
        memory one(100, 1);
        memory two(100, 1);
        beside here(do_receive(a, one));
        beside there(do_receive(b, two));
        scope s;
        s.spawn(here.run());
        s.spawn(there.run());
        co_await yields(3);
        auto closed = co_await a.close();
        CHECK(closed);
        auto joined = co_await s.join();
        REQUIRE(joined);
        CHECK(here.outcome->error() == errc::closed);
        CHECK(there.outcome->error() == errc::closed);
    };
    sync_wait(*home, body(pair.a, pair.b));
}

TEST_CASE("Tcp_closing.a_peer_that_vanishes_ends_everything_with_one_cause") {
    const auto home = make_executor();
    half_pair pair(*home);
    const auto body = [](connection& conn, raw_peer& peer) -> task<void> {
        memory m(32 << 20, 1);
        memory n(100, 1);
        memory o(100, 1);
        beside writing(do_write(conn, made_up(32 << 20), m));
        beside reading(do_read(conn, made_up(100), n));
        beside receiving(do_receive(conn, o));
        scope s;
        s.spawn(writing.run());
        s.spawn(reading.run());
        s.spawn(receiving.run());
        auto slept = co_await sleep_for(20ms); // the write is stuck in the socket by now
        REQUIRE(slept);
        peer.close();
        auto joined = co_await s.join();
        REQUIRE(joined);
        for (const auto* outcome : {&*writing.outcome, &*reading.outcome}) {
            REQUIRE_FALSE(*outcome);
            CHECK(outcome->error() == condition::closed);
        }
        CHECK(receiving.outcome->error() == condition::closed);
        CHECK(reading.outcome->error().message() == writing.outcome->error().message());
        auto why = co_await conn.closed();
        REQUIRE_FALSE(why);
        CHECK(why.error().message() == writing.outcome->error().message());
        CHECK_FALSE(conn.is_open());
        auto after = co_await conn.read(made_up(100), n);
        CHECK(after.error().message() == why.error().message());
    };
    sync_wait(*home, body(pair.conn, pair.peer));
}

TEST_CASE("Tcp_closing.a_goodbye_is_missed_in_the_end_of_the_stream") {
    const auto home = make_executor();
    half_pair pair(*home);
    pair.peer.close();
    const auto body = [](connection& conn) -> task<void> {
        auto why = co_await conn.closed();
        REQUIRE_FALSE(why);
        CHECK(why.error() == errc::closed);
        CHECK(says(why.error(), "without a goodbye"));
    };
    sync_wait(*home, body(pair.conn));
}

TEST_CASE("Tcp_closing.a_connection_destroyed_without_close_is_reset") {
    const auto home = make_executor();
    auto sockets = tcp_socket_pair();
    std::vector<detail::unique_fd> left;
    std::vector<detail::unique_fd> right;
    left.push_back(std::move(sockets.first));
    right.push_back(std::move(sockets.second));
    auto a = make_connection(*home, {}, std::move(left));
    auto b = make_connection(*home, {}, std::move(right));
    const auto body = [](connection& gone, connection& stays) -> task<void> {
        co_await yields(3);
        gone = connection();
        auto why = co_await stays.closed();
        REQUIRE_FALSE(why);
        CHECK(why.error() == condition::closed);
        CHECK(why.error().code() == std::errc::connection_reset);
    };
    sync_wait(*home, body(a, b));
}

TEST_CASE("Tcp_closing.does_not_wait_for_ever_for_a_goodbye") {
    const auto home = make_executor();
    pair_options options;
    options.options.peer_timeout = 50ms;
    half_pair pair(*home, options);
    const auto body = [](connection& conn, raw_peer& peer) -> task<void> {
        auto closed = co_await conn.close();
        REQUIRE_FALSE(closed);
        CHECK(closed.error() == errc::peer_lost);
        CHECK(says(closed.error(), "within 50 ms"));
        co_await peer.receive(frame_type::goodbye);
    };
    sync_wait(*home, body(pair.conn, pair.peer));
}

TEST_CASE("Tcp_closing.every_broken_rule_of_the_protocol_closes_the_connection_and_says_why") {
    struct rule {
        frame f;
        const char* text;
    };
    const std::vector<rule> rules{
        {{.type = frame_type::reply, .id = 3}, "reply names operation 3"},
        {{.type = frame_type::end, .id = 3}, "end names operation 3"},
        {{.type = frame_type::accept, .id = 3}, "accept names operation 3"},
        {{.type = frame_type::data, .id = 3}, "operation 3 expects no data"},
        {{.type = frame_type::commit, .id = 3}, "operation 3 is not under way"},
        {{.type = frame_type::read, .id = 99}, "operation number 99, allowed is 0..79"},
        {{.type = frame_type::credit, .immediate = 1}, "1 credits given back, 0 are out"},
        {{.type = frame_type::message, .size = 7}, "0 bytes of 7"},
        {{.type = frame_type::offer, .size = 17 << 20}, "a message of 17825792 bytes"},
        {{.type = frame_type::write, .size = 10}, "0 bytes of payload for a write of 10"},
    };
    for (const rule& r : rules) {
        const auto home = make_executor();
        half_pair pair(*home);
        const auto body = [](connection& conn, raw_peer& peer, const rule& broken) -> task<void> {
            co_await peer.send(broken.f);
            auto why = co_await conn.closed();
            REQUIRE_FALSE(why);
            CHECK(why.error() == condition::protocol_error);
            INFO(why.error().message());
            CHECK(says(why.error(), broken.text));
        };
        sync_wait(*home, body(pair.conn, pair.peer, r));
    }
}

TEST_CASE("Tcp_closing.more_messages_than_credits_are_refused") {
    const auto home = make_executor();
    half_pair pair(*home, {.receive_credits = 4});
    const auto body = [](connection& conn, raw_peer& peer) -> task<void> {
        for (int i = 0; i < 5; ++i) co_await peer.send({.type = frame_type::message});
        auto why = co_await conn.closed();
        REQUIRE_FALSE(why);
        CHECK(says(why.error(), "more messages than the 4"));
        // Those that came before can be received.
        memory in(0, 0);
        for (int i = 0; i < 4; ++i) {
            auto got = co_await conn.receive(in);
            CHECK(got);
        }
        auto none = co_await conn.receive(in);
        CHECK(none.error() == condition::protocol_error);
    };
    sync_wait(*home, body(pair.conn, pair.peer));
}

TEST_CASE("Tcp_closing.random_frames_never_do_more_than_close_the_connection") {
    std::mt19937_64 random(7471);
    for (int round = 0; round < 300; ++round) {
        const auto home = make_executor();
        half_pair pair(*home, {.operations_in_flight = 8, .receive_credits = 8});
        const auto body = [](connection& conn, raw_peer& peer, std::mt19937_64& dice) -> task<void> {
            memory ours(4096, 1);
            auto shared = co_await conn.share(ours, all_access);
            REQUIRE(shared);
            std::vector<std::byte> stream;
            for (int i = 0; i < 40; ++i) {
                frame f;
                f.type = static_cast<frame_type>(1 + dice() % frame_type_max);
                f.id = make_id(static_cast<std::uint32_t>(dice() % 18), static_cast<std::uint32_t>(dice() % 3));
                f.key = shared->description().key + dice() % 2;
                f.generation = shared->description().generation;
                f.address = dice() % 4 != 0 ? shared->description().address + dice() % 5000 : dice() % 20000;
                f.size = dice() % 3 != 0 ? dice() % 20000 : dice();
                f.immediate = static_cast<std::uint32_t>(dice() % 4);
                std::size_t payload = 0;
                if (f.type == frame_type::write || f.type == frame_type::message) payload = f.size = dice() % 4000;
                if (f.type == frame_type::data) payload = dice() % 20000;
                f.payload_bytes = static_cast<std::uint32_t>(payload);
                std::array<std::byte, frame_header_bytes> header{};
                encode(f, header);
                stream.insert(stream.end(), header.begin(), header.end());
                for (std::size_t b = 0; b < payload; ++b) stream.push_back(static_cast<std::byte>(dice()));
            }
            if (dice() % 2 != 0) stream[dice() % stream.size()] ^= std::byte{0x41};
            // The connection may close while we send.
            static_cast<void>(::send(peer.fd(), stream.data(), stream.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
            co_await yields(5);
            peer.close();
            auto why = co_await conn.closed();
            CHECK_FALSE(why);
        };
        sync_wait(*home, body(pair.conn, pair.peer, random));
    }
}
