#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/stream.hpp>
#include <sluice/when_all.hpp>

#include "net/wire.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

using namespace sluice;
using namespace sluice::net;
using namespace std::chrono_literals;

namespace {

bool says(const error& e, std::string_view text) {
    UNSCOPED_INFO(e.message());
    return e.message().find(text) != std::string::npos;
}

runtime make_runtime() {
    auto made = runtime::create({.pool_bytes = 2 << 20, .pin = false});
    REQUIRE(made);
    return std::move(*made);
}

/// Answers the first client with these bytes, whatever it says, and closes unless told to stay.
task<void> answer(stream_listener& on, std::span<const std::byte> bytes, bool stay) {
    auto client = co_await on.accept();
    REQUIRE(client);
    std::array<std::byte, greeting_bytes> hello{};
    auto heard = co_await client->read(hello);
    REQUIRE(heard);
    auto sent = co_await client->write_all(bytes);
    REQUIRE(sent);
    if (!stay) co_return;
    auto gone = co_await client->read_some(hello); // until the client gives up
    static_cast<void>(gone);
}

task<result<void>> connect_to(runtime& rt, address to, connection_options options = {}) {
    auto conn = co_await rt.connect(to, options);
    if (!conn) co_return conn.error();
    co_return co_await conn->close();
}

/// What connect says when a server answers like this.
error connect_against(std::span<const std::byte> bytes, bool stay = false) {
    auto rt = make_runtime();
    std::optional<error> outcome;
    const auto body = [](runtime& r, std::span<const std::byte> said, bool stays, std::optional<error>& out) -> task<void> {
        auto l = co_await stream_listener::listen(*address::parse("tcp://127.0.0.1:0"));
        REQUIRE(l);
        auto results = co_await when_all(answer(*l, said, stays),
                                         connect_to(r, l->address(), {.connect_timeout = stays ? 100ms : 10'000ms}));
        REQUIRE_FALSE(std::get<1>(results));
        out = std::get<1>(results).error();
    };
    rt.sync_wait(body(rt, bytes, stay, outcome));
    return *outcome;
}

/// Sends these bytes to a listener and waits until it hangs up.
task<std::vector<std::byte>> knock(address at, std::span<const std::byte> bytes) {
    auto s = co_await stream::connect(at);
    REQUIRE(s);
    auto sent = co_await s->write_all(bytes);
    REQUIRE(sent);
    std::vector<std::byte> heard;
    for (;;) {
        std::array<std::byte, 256> some{};
        auto got = co_await s->read_some(some);
        if (!got || *got == 0) break;
        heard.insert(heard.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(*got));
    }
    co_return heard;
}

task<void> serve_one(listener& on) {
    auto peer = co_await on.accept();
    REQUIRE(peer);
    auto left = co_await peer->closed();
    CHECK(left);
}

} // namespace

TEST_CASE("Tcp_handshake.a_peer_that_is_not_sluice_is_an_error_that_quotes_it") {
    const std::string_view http = "HTTP/1.1 400 Bad Request\r\n\r\n";
    const error e = connect_against(std::as_bytes(std::span(http)));
    CHECK(e == condition::protocol_error);
    CHECK(says(e, "48 54 54 50"));
    CHECK(says(e, "HTTP/1.1"));
}

TEST_CASE("Tcp_handshake.a_peer_that_hangs_up_or_says_nothing_is_an_error") {
    const error gone = connect_against({});
    CHECK(gone == condition::closed);
    CHECK(says(gone, "after 0 of 56 bytes"));
    const error silent = connect_against({}, true);
    CHECK(silent == condition::timed_out);
    CHECK(says(silent, "within 100 ms"));
}

TEST_CASE("Tcp_handshake.another_version_is_named_with_ours") {
    auto bytes = encode(greeting{.version_min = 2, .version_max = 3, .kind = greeting_kind::refused, .reason = refusal::version});
    const error e = connect_against(bytes);
    CHECK(e == errc::version_mismatch);
    CHECK(says(e, "the peer speaks versions 2..3, this end 1"));
}

TEST_CASE("Tcp_handshake.a_welcome_that_grants_too_much_is_refused") {
    const auto bytes = encode(greeting{.kind = greeting_kind::welcome,
                                       .lanes = 2,
                                       .operations_in_flight = 1,
                                       .receive_credits = 1,
                                       .message_bytes_max = 1});
    const error e = connect_against(bytes);
    CHECK(e == condition::protocol_error);
    CHECK(says(e, "grants more"));
}

TEST_CASE("Tcp_handshake.nobody_listening_is_connection_refused") {
    auto rt = make_runtime();
    const auto body = [](runtime& r) -> task<void> {
        auto l = co_await r.listen("tcp://127.0.0.1:0");
        REQUIRE(l);
        const address where = l->address();
        l->close();
        auto refused = co_await connect_to(r, where);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().code() == std::errc::connection_refused);
        CHECK(says(refused.error(), where.to_string()));
        auto ended = co_await l->accept();
        REQUIRE_FALSE(ended);
        CHECK(ended.error() == errc::closed);
    };
    rt.sync_wait(body(rt));
}

TEST_CASE("Tcp_handshake.the_listener_drops_and_counts_whoever_fails_it_and_serves_the_others") {
    auto rt = make_runtime();
    const auto body = [](runtime& r) -> task<void> {
        listen_options options;
        options.connection.connect_timeout = 200ms;
        auto l = co_await r.listen("tcp://127.0.0.1:0", options);
        REQUIRE(l);
        // This one says nothing, and holds nobody up.
        auto silent = co_await stream::connect(l->address());
        REQUIRE(silent);
        const std::string_view garbage = "GET / HTTP/1.1\r\n\r\n";
        auto heard = co_await knock(l->address(), std::as_bytes(std::span(garbage)));
        CHECK(heard.empty());
        const auto future = encode(greeting{.version_min = 7, .version_max = 9});
        auto refused = co_await knock(l->address(), future);
        REQUIRE(refused.size() == greeting_bytes);
        const auto answered = decode_greeting(std::span<const std::byte, greeting_bytes>(refused.data(), greeting_bytes));
        REQUIRE(answered);
        CHECK(answered->kind == greeting_kind::refused);
        CHECK(answered->reason == refusal::version);
        CHECK(answered->version_max == protocol_version);
        const auto lost = encode(greeting{.kind = greeting_kind::attach, .lane = 1, .token = {1, 2}});
        auto unknown = co_await knock(l->address(), lost);
        REQUIRE(unknown.size() == greeting_bytes);
        const auto greedy = encode(greeting{.kind = greeting_kind::hello, .lanes = 99});
        auto dropped = co_await knock(l->address(), greedy);
        CHECK(dropped.empty());
        CHECK(l->rejected() == 4);
        auto results = co_await when_all(serve_one(*l), connect_to(r, l->address()));
        CHECK(std::get<1>(results));
        // In time the silent one is dropped too.
        std::array<std::byte, 8> none{};
        auto end = co_await silent->read_some(none);
        REQUIRE(end);
        CHECK(*end == 0);
        CHECK(l->rejected() == 5);
    };
    rt.sync_wait(body(rt));
}

TEST_CASE("Tcp_handshake.limits_meet_in_the_middle") {
    auto rt = make_runtime();
    const auto body = [](runtime& r) -> task<void> {
        listen_options options;
        options.connection = {.lanes = 2, .operations_in_flight = 100, .receive_credits = 64, .message_bytes_max = 5000};
        auto l = co_await r.listen("tcp://127.0.0.1:0", options);
        REQUIRE(l);
        const auto connecting = [](runtime& on, address to) -> task<void> {
            auto c = co_await on.connect(to, {.lanes = 8, .operations_in_flight = 500, .receive_credits = 8, .message_bytes_max = 9000});
            REQUIRE(c);
            CHECK(c->capabilities().lanes == 2);
            CHECK(c->capabilities().operations_in_flight == 100);
            CHECK(c->capabilities().message_bytes_max == 5000);
            CHECK(c->peer_address() == to.to_string());
            auto closed = co_await c->close();
            CHECK(closed);
        };
        co_await when_all(serve_one(*l), connecting(r, l->address()));
    };
    rt.sync_wait(body(rt));
}

TEST_CASE("Tcp_handshake.wrong_options_and_addresses_are_named") {
    auto rt = make_runtime();
    const auto body = [](runtime& r) -> task<void> {
        auto lanes = co_await r.connect("tcp://127.0.0.1:1", {.lanes = 17});
        CHECK(says(lanes.error(), "connection_options.lanes = 17, allowed is 1..16"));
        auto credits = co_await r.connect("tcp://127.0.0.1:1", {.receive_credits = 0});
        CHECK(says(credits.error(), "receive_credits = 0"));
        auto port = co_await r.connect("tcp://127.0.0.1:0");
        CHECK(port.error() == errc::invalid_address);
        auto text = co_await r.connect("tcp:/nonsense");
        CHECK(text.error() == errc::invalid_address);
        auto rdma = co_await r.connect("rdma://127.0.0.1:1");
        CHECK(rdma.error() == condition::unsupported);
        auto twice = co_await r.listen("tcp://127.0.0.1:0");
        REQUIRE(twice);
        auto busy = co_await r.listen(twice->address());
        CHECK(busy.error() == condition::busy);
        listen_options none;
        none.backlog = 0;
        auto backlog = co_await r.listen("tcp://127.0.0.1:0", none);
        CHECK(says(backlog.error(), "backlog = 0"));
    };
    rt.sync_wait(body(rt));
}

TEST_CASE("Tcp_handshake.a_stop_ends_accept_and_connect") {
    auto rt = make_runtime();
    const auto body = [](runtime& r) -> task<void> {
        auto l = co_await r.listen("tcp://127.0.0.1:0");
        REQUIRE(l);
        auto deaf = co_await stream_listener::listen(*address::parse("tcp://127.0.0.1:0"));
        REQUIRE(deaf);
        std::optional<error> accepted;
        std::optional<error> connected;
        const auto accepting = [](listener& on, std::optional<error>& out) -> task<void> {
            auto got = co_await on.accept();
            if (!got) out = got.error();
        };
        const auto connecting = [](runtime& on, address to, std::optional<error>& out) -> task<void> {
            auto got = co_await connect_to(on, to);
            if (!got) out = got.error();
        };
        scope s;
        s.spawn(accepting(*l, accepted));
        s.spawn(connecting(r, deaf->address(), connected));
        auto slept = co_await sleep_for(10ms);
        REQUIRE(slept);
        s.request_stop();
        auto joined = co_await s.join();
        REQUIRE(accepted);
        CHECK(*accepted == condition::canceled);
        REQUIRE(connected);
        CHECK(*connected == condition::canceled);
    };
    rt.sync_wait(body(rt));
}

TEST_CASE("Tcp_handshake.a_listener_without_descriptors_waits_and_goes_on") {
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    auto rt = make_runtime();
    const auto body = [](runtime& r, rlimit old) -> task<void> {
        auto l = co_await r.listen("tcp://127.0.0.1:0");
        REQUIRE(l);
        auto client = co_await stream::connect(l->address());
        REQUIRE(client);
        auto another = co_await stream::connect(l->address());
        REQUIRE(another);
        // A connection is waiting, and there is no number for it.
        const int next = ::dup(0);
        REQUIRE(next >= 0);
        ::close(next);
        const rlimit tight{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = old.rlim_max};
        auto settled = co_await sleep_for(5ms);
        REQUIRE(settled);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
        client->close();
        auto third = co_await sleep_for(30ms);
        REQUIRE(third);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &old) == 0);
        auto results = co_await when_all(serve_one(*l), connect_to(r, l->address()));
        CHECK(std::get<1>(results));
    };
    rt.sync_wait(body(rt, limit));
}
