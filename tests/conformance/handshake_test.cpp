#include <sluice/stream.hpp>

#include "net/wire.hpp"
#include "tests/conformance/pair.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace sluice::conformance {

namespace {

using namespace std::chrono_literals;

using greeting_image = std::array<std::byte, net::greeting_bytes>;
constexpr std::size_t version_offset = 8;

address at(const std::string& text) { return must(address::parse(text)); }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

task<result<connection>> accept_task(listener& l) { co_return co_await l.accept(); }

/// What a client says first.
task<greeting_image> overhear_hello(runtime& rt, const provider& p) {
    auto ear = must(co_await stream_listener::listen(at(listen_address(p))));
    std::optional<result<connection>> ended;
    scope connecting;
    connecting.spawn(detail::store(rt.connect(ear.address(), with_lanes(p, {})), ended));
    stream heard = must(co_await ear.accept());
    greeting_image hello{};
    must(co_await heard.read(hello));
    connecting.request_stop();
    static_cast<void>(co_await connecting.join());
    VERIFY(!*ended);
    co_return hello;
}

/// Takes peers in until one has something to say; those before it had greeted and gone.
task<void> serve_a_live_one(listener& l) {
    for (;;) {
        connection peer = must(co_await l.accept());
        auto heard = co_await peer.receive<char>();
        if (!heard) continue;
        VERIFY_EQUAL(*heard, char{5});
        must(co_await peer.closed());
        co_return;
    }
}

/// The listener takes a good peer in, whatever others do meanwhile.
task<void> still_accepts(runtime& rt, const provider& p, listener& l) {
    scope serving;
    serving.spawn(serve_a_live_one(l));
    connection client = must(co_await rt.connect(l.address(), with_lanes(p, {})));
    must(co_await client.send(char{5}));
    must(co_await client.close());
    must(co_await serving.join());
}

task<void> gets_garbage(runtime& rt, const provider& p) {
    auto l = must(co_await rt.listen(listen_address(p)));
    greeting_image hello = co_await overhear_hello(rt, p);
    std::vector<std::string> garbage{"x", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
                                     std::string(4096, '\0'), std::string(100'000, '\xff'), "sluice\n\n",
                                     std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8)};
    const auto as_text = [](const greeting_image& g) {
        return std::string(reinterpret_cast<const char*>(g.data()), g.size());
    };
    garbage.push_back(as_text(hello).substr(0, 20)); // and then the end
    for (std::size_t place = 0; place < hello.size(); ++place) {
        greeting_image broken = hello;
        broken[place] ^= std::byte{0x80};
        garbage.push_back(as_text(broken));
    }
    const auto rejected_before = l.rejected();
    for (const std::string& text : garbage) {
        stream s = must(co_await stream::connect(l.address()));
        static_cast<void>(co_await s.write_all(bytes_of(text))); // it may have hung up already
        static_cast<void>(s.shutdown_send());
        std::array<std::byte, 256> answer{};
        for (result<std::size_t> got = std::size_t{1}; got && *got != 0;) got = co_await s.read_some(answer);
    }
    VERIFY(l.rejected() >= rejected_before + 8);
    co_await still_accepts(rt, p, l);
}

task<void> meets_another_version(runtime& rt, const provider& p) {
    auto l = must(co_await rt.listen(listen_address(p)));
    greeting_image hello = co_await overhear_hello(rt, p);
    std::fill_n(hello.begin() + version_offset, 4, std::byte{0x77});
    stream s = must(co_await stream::connect(l.address()));
    must(co_await s.write_all(hello));
    greeting_image answer{};
    must(co_await s.read(answer));
    const net::greeting refused = must(net::decode_greeting(answer));
    VERIFY(refused.kind == net::greeting_kind::refused);
    VERIFY(refused.reason == net::refusal::version);
    VERIFY_EQUAL(refused.version_max, net::protocol_version);
    std::byte more{};
    VERIFY_EQUAL(must(co_await s.read_some({&more, 1})), 0U);
    VERIFY_EQUAL(l.rejected(), 1U);
    co_await still_accepts(rt, p, l);
}

task<result<void>> answer_with(stream_listener& l, std::vector<std::byte> answer) {
    auto s = co_await l.accept();
    if (!s) co_return std::move(s).error();
    greeting_image hello{};
    if (auto heard = co_await s->read(hello); !heard) co_return heard;
    if (auto said = co_await s->write_all(answer); !said) co_return said;
    std::byte more{};
    static_cast<void>(co_await s->read_some({&more, 1})); // until the client hangs up
    co_return result<void>{};
}

task<error> connect_to_answer(runtime& rt, const provider& p, std::span<const std::byte> answer) {
    auto l = must(co_await stream_listener::listen(at(listen_address(p))));
    scope answering;
    answering.spawn(answer_with(l, std::vector<std::byte>(answer.begin(), answer.end())));
    auto made = co_await rt.connect(l.address(), with_lanes(p, {}));
    must(co_await answering.join());
    VERIFY(!made);
    must_name(made.error(), l.address().to_string());
    co_return made.error();
}

task<void> connects_to_strangers(runtime& rt, const provider& p) {
    const error ssh = co_await connect_to_answer(rt, p, bytes_of("SSH-2.0-OpenSSH_9.2\r\n"));
    VERIFY(ssh == condition::protocol_error);
    must_name(ssh, "SSH-2.0");
    const error zeros = co_await connect_to_answer(rt, p, std::vector<std::byte>(5000));
    VERIFY(zeros == condition::protocol_error);

    const auto newer = net::encode(
        net::greeting{.version_min = 7, .version_max = 9, .kind = net::greeting_kind::refused, .reason = net::refusal::version});
    const error version = co_await connect_to_answer(rt, p, newer);
    VERIFY(version == errc::version_mismatch);
    must_name(version, "7");
    must_name(version, "9");
}

/// A peer that takes the connection and never says a word, and one that hangs up.
task<void> connects_to_silence(runtime& rt, const provider& p) {
    auto l = must(co_await stream_listener::listen(at(listen_address(p))));
    connection_options options = with_lanes(p, {});
    options.connect_timeout = 100ms;
    const auto silent = co_await rt.connect(l.address(), options);
    must_name(must_fail(silent, condition::timed_out), l.address().to_string());
    auto first = must(co_await l.accept());

    scope hanging_up;
    const auto hang_up = [](stream_listener& from) -> task<result<void>> {
        auto s = co_await from.accept();
        if (!s) co_return std::move(s).error();
        co_return result<void>{};
    };
    hanging_up.spawn(hang_up(l));
    const auto hung_up = co_await rt.connect(l.address(), with_lanes(p, {}));
    must(co_await hanging_up.join());
    must_name(must_fail(hung_up, condition::closed), l.address().to_string());

    scope stopping;
    std::optional<result<connection>> stopped;
    stopping.spawn(detail::store(rt.connect(l.address(), with_lanes(p, {})), stopped));
    auto third = must(co_await l.accept());
    stopping.request_stop();
    must(co_await stopping.join());
    must_fail(*stopped, condition::canceled);
}

task<void> is_not_held_up(runtime& rt, const provider& p) {
    listen_options options;
    options.connection.connect_timeout = 300ms;
    auto l = must(co_await rt.listen(listen_address(p), options));
    const greeting_image hello = co_await overhear_hello(rt, p);
    std::vector<stream> slow;
    for (int i = 0; i < 30; ++i) {
        slow.push_back(must(co_await stream::connect(l.address())));
        if (i % 2 == 0) must(co_await slow.back().write_all(std::span(hello).first(10)));
    }
    VERIFY_EQUAL(l.rejected(), 0U);
    co_await still_accepts(rt, p, l); // while all of them are in the middle of their handshake
    std::byte more{};
    for (stream& s : slow) { // and they are hung up on in the end
        const auto got = co_await s.read_some({&more, 1});
        VERIFY(!got || *got == 0);
    }
    VERIFY_EQUAL(l.rejected(), 30U);
    co_await still_accepts(rt, p, l);
}

task<void> stops_and_closes(runtime& rt, const provider& p) {
    auto l = must(co_await rt.listen(listen_address(p)));
    must_fail(co_await stopped_after(0, accept_task(l)), condition::canceled);
    must_fail(co_await stopped_after(10, accept_task(l)), condition::canceled);
    const auto again = co_await rt.listen(l.address());
    must_name(must_fail(again, condition::busy), l.address().to_string());
    co_await still_accepts(rt, p, l);

    std::optional<result<connection>> waiting;
    scope accepting;
    accepting.spawn(detail::store(accept_task(l), waiting));
    for (int i = 0; i < 10; ++i) co_await yield();
    const address where = l.address();
    l.close();
    l.close();
    static_cast<void>(co_await accepting.join());
    must_fail(*waiting, errc::closed);
    must_fail(co_await l.accept(), errc::closed);
    const auto refused = co_await rt.connect(where, with_lanes(p, {}));
    VERIFY(!refused);
    VERIFY(refused.error() == std::errc::connection_refused);
    must_name(refused.error(), where.to_string());
}

template <class Change>
task<void> option_is_refused(runtime& rt, const provider& p, const char* field, Change change) {
    connection_options options = with_lanes(p, {});
    change(options);
    const auto connected = co_await rt.connect(at("tcp://127.0.0.1:1"), options);
    must_name(must_fail(connected, condition::invalid), field);
    listen_options listening;
    listening.connection = options;
    const auto listened = co_await rt.listen(listen_address(p), listening);
    must_name(must_fail(listened, condition::invalid), field);
}

task<void> refuses_options(runtime& rt, const provider& p) {
    co_await option_is_refused(rt, p, "lanes", [](connection_options& o) { o.lanes = 0; });
    co_await option_is_refused(rt, p, "lanes", [](connection_options& o) { o.lanes = 17; });
    co_await option_is_refused(rt, p, "operations_in_flight", [](connection_options& o) { o.operations_in_flight = 0; });
    co_await option_is_refused(rt, p, "operations_in_flight", [](connection_options& o) { o.operations_in_flight = 65537; });
    co_await option_is_refused(rt, p, "receive_credits", [](connection_options& o) { o.receive_credits = 0; });
    co_await option_is_refused(rt, p, "receive_credits", [](connection_options& o) { o.receive_credits = 4097; });
    co_await option_is_refused(rt, p, "message_bytes_max", [](connection_options& o) { o.message_bytes_max = 0; });
    co_await option_is_refused(rt, p, "message_bytes_max",
                               [](connection_options& o) { o.message_bytes_max = (1U << 30) + 1; });
    co_await option_is_refused(rt, p, "connect_timeout", [](connection_options& o) { o.connect_timeout = 0ns; });
    co_await option_is_refused(rt, p, "default_deadline", [](connection_options& o) { o.default_deadline = -1ns; });
    must_name(must_fail(co_await rt.connect("tcp://nowhere"), errc::invalid_address), "nowhere");
    must_name(must_fail(co_await rt.listen("tcp://127.0.0.1:x"), errc::invalid_address), "\"x\"");
    must_name(must_fail(co_await rt.connect("tcp://127.0.0.1:0"), condition::invalid), "port 0");
}

} // namespace

CONFORMANCE_TEST("Handshake.garbage_is_dropped_and_counted", p) {
    if (!p.speaks_on_streams) SKIP("its handshake can't be forged on a stream");
    run_alone([&](runtime& rt) { return gets_garbage(rt, p); });
}

CONFORMANCE_TEST("Handshake.another_version_is_told_why", p) {
    if (!p.speaks_on_streams) SKIP("its handshake can't be forged on a stream");
    run_alone([&](runtime& rt) { return meets_another_version(rt, p); });
}

CONFORMANCE_TEST("Handshake.a_peer_that_is_not_sluice_is_named", p) {
    if (!p.speaks_on_streams) SKIP("its handshake can't be forged on a stream");
    run_alone([&](runtime& rt) { return connects_to_strangers(rt, p); });
}

CONFORMANCE_TEST("Handshake.a_silent_peer_is_left_after_the_connect_timeout", p) {
    if (!p.speaks_on_streams) SKIP("its handshake can't be forged on a stream");
    run_alone([&](runtime& rt) { return connects_to_silence(rt, p); });
}

CONFORMANCE_TEST("Handshake.slow_peers_hold_nobody_up", p) {
    if (!p.speaks_on_streams) SKIP("its handshake can't be forged on a stream");
    run_alone([&](runtime& rt) { return is_not_held_up(rt, p); });
}

CONFORMANCE_TEST("Listener.stops_closes_and_names_an_address_in_use", p) {
    run_alone([&](runtime& rt) { return stops_and_closes(rt, p); });
}

CONFORMANCE_TEST("Options.out_of_range_are_refused_by_name", p) {
    run_alone([&](runtime& rt) { return refuses_options(rt, p); });
}

} // namespace sluice::conformance
