#include <sluice/executor.hpp>
#include <sluice/sleep.hpp>
#include <sluice/stop.hpp>
#include <sluice/stream.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/when_all.hpp>

#include "net/endpoint.hpp"
#include "net/resolve.hpp"
#include "net/socket.hpp"
#include "tests/net/socket_fixture.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <unistd.h>
#include <vector>

using namespace std::chrono_literals;
using namespace sluice;
using namespace sluice::net;
using sluice::testing::connected_pair;
using sluice::testing::make_executor;
using sluice::testing::must;
using sluice::testing::run;
using sluice::testing::run_for;

namespace {

std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed = 1) {
    std::vector<std::byte> made(bytes);
    for (std::byte& b : made) b = static_cast<std::byte>((seed = seed * 1664525 + 1013904223) >> 24);
    return made;
}

address at(std::string_view text) { return must(address::parse(text)); }

int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    REQUIRE(getsockopt(fd, level, name, &value, &bytes) == 0);
    return value;
}

/// An address on which nobody listens, held by a socket that is bound and doesn't listen.
struct closed_port {
    stream_socket holder = must(stream_socket::create(AF_INET));
    endpoint where;
    closed_port() {
        const endpoint any = *must(numeric_endpoint(at("tcp://127.0.0.1:0")));
        REQUIRE(bind(holder.fd(), any.get(), any.length) == 0);
        where = must(local_endpoint(holder.fd()));
    }
};

task<result<void>> send_segments_of(stream_socket& s, std::vector<iovec>& segments) {
    co_return co_await s.send(segments);
}
task<result<void>> write_all_of(stream& s, std::span<const std::byte> from) { co_return co_await s.write_all(from); }
task<result<void>> read_of(stream& s, std::span<std::byte> into) { co_return co_await s.read(into); }
task<result<std::size_t>> read_some_of(stream& s, std::span<std::byte> into) { co_return co_await s.read_some(into); }

} // namespace

TEST_CASE("Socket.connect_to_a_closed_port_is_refused_and_names_the_address") {
    const auto home = make_executor();
    const closed_port nobody;
    auto made = run(*home, stream::connect(nobody.where.to_address(scheme::tcp)));
    REQUIRE_FALSE(made);
    CHECK(made.error() == std::errc::connection_refused);
    CHECK(made.error().message().find(to_string(nobody.where)) != std::string::npos);
}

TEST_CASE("Socket.a_second_connect_of_the_same_socket_is_refused_likewise") {
    const auto home = make_executor();
    const closed_port nobody;
    auto s = must(stream_socket::create(AF_INET));
    for (int attempt = 0; attempt < 4; ++attempt) {
        const auto done = run(*home, s.connect(nobody.where));
        REQUIRE_FALSE(done);
        CHECK(done.error() == std::errc::connection_refused);
    }
}

TEST_CASE("Socket.a_second_connect_of_a_connected_socket_finds_it_connected") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    auto s = must(stream_socket::create(AF_INET));
    const endpoint to = *must(numeric_endpoint(listener.address()));
    REQUIRE(run(*home, s.connect(to)));
    CHECK(run(*home, s.connect(to)));
}

TEST_CASE("Socket.connect_tries_the_next_address_after_a_refusal") {
    const auto home = make_executor();
    const closed_port nobody;
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    const std::vector<endpoint> both{nobody.where, *must(numeric_endpoint(listener.address()))};
    const auto made = run(*home, connect_first(both));
    REQUIRE(made);
    CHECK(must(peer_endpoint(made->fd())).port() == listener.address().port);
}

TEST_CASE("Socket.connect_to_a_missing_unix_path_is_not_found") {
    const auto home = make_executor();
    const auto made = run(*home, stream::connect(at("tcp:///nonexistent/sluice.sock")));
    REQUIRE_FALSE(made);
    CHECK(made.error() == condition::not_found);
    CHECK(made.error().message().find("tcp:///nonexistent/sluice.sock") != std::string::npos);
}

TEST_CASE("Socket.connects_over_every_family") {
    const auto home = make_executor();
    const std::string path = "/tmp/sluice-socket-test-" + std::to_string(getpid());
    for (const std::string& text : {std::string("tcp://127.0.0.1:0"), std::string("tcp://[::1]:0"),
                                    std::string("tcp://localhost:0"), "tcp://" + path,
                                    "tcp://@sluice-socket-test-" + std::to_string(getpid())}) {
        INFO(text);
        auto pair = connected_pair(*home, text);
        const auto sent = pattern(100'000);
        std::vector<std::byte> got(sent.size());
        auto [wrote, read] = run(*home, when_all(write_all_of(pair.client, sent), read_of(pair.server, got)));
        CHECK(wrote);
        CHECK(read);
        CHECK(got == sent);
        CHECK(must(pair.client.peer_address()) == must(pair.server.local_address()));
        CHECK(must(pair.client.local_address()).port == must(pair.server.peer_address()).port);
    }
    CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("Socket.send_goes_on_after_partial_sends_of_many_segments") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    const int small = 128 << 10;
    REQUIRE(setsockopt(pair.client.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    // 3000 segments are more than one call takes; empty ones lie among them.
    auto sent = pattern(40 << 20);
    std::vector<iovec> segments;
    std::uint32_t seed = 7;
    for (std::size_t offset = 0; offset < sent.size();) {
        seed = seed * 1664525 + 1013904223;
        const std::size_t n = std::min<std::size_t>((seed >> 8) % 28'000, sent.size() - offset);
        segments.push_back({sent.data() + offset, n});
        offset += n;
        if (n % 5 == 0) segments.push_back({nullptr, 0});
    }
    REQUIRE(segments.size() > 2048);
    std::vector<std::byte> got(sent.size());
    auto [wrote, read] = run(*home, when_all(send_segments_of(pair.client, segments), read_of(pair.server, got)));
    CHECK(wrote);
    CHECK(read);
    CHECK(got == sent);
}

TEST_CASE("Socket.writes_and_reads_of_nothing_succeed_at_once") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    std::vector<iovec> none(3);
    CHECK(run(*home, write_all_of(pair.client, {})));
    CHECK(run(*home, read_of(pair.client, {})));
    CHECK(run(*home, send_segments_of(pair.client, none)));
}

TEST_CASE("Socket.cancel_ends_each_operation_that_waits") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    CHECK(run_for(*home, 1ms, listener.accept()).error() == condition::canceled);

    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    std::vector<std::byte> buffer(64 << 20);
    std::vector<iovec> segments{{buffer.data(), buffer.size()}};
    CHECK(run_for(*home, 1ms, read_some_of(pair.client, buffer)).error() == condition::canceled);
    CHECK(run_for(*home, 1ms, read_of(pair.client, buffer)).error() == condition::canceled);
    CHECK(run_for(*home, 1ms, write_all_of(pair.client, buffer)).error() == condition::canceled);
    CHECK(run_for(*home, 1ms, send_segments_of(pair.client, segments)).error() == condition::canceled);
    CHECK_FALSE(pair.client.busy());

    // A unix socket with a full backlog keeps connect waiting.
    const std::string name = "tcp://@sluice-backlog-" + std::to_string(getpid());
    auto full = must(run(*home, stream_listener::listen(at(name), {.backlog = 0})));
    std::vector<stream> waiting;
    result<stream> last = errc::closed;
    for (int i = 0; i < 4 && (i == 0 || last); ++i) {
        last = run_for(*home, 20ms, stream::connect(full.address()));
        if (last) waiting.push_back(std::move(*last));
    }
    REQUIRE_FALSE(last);
    CHECK(last.error() == condition::canceled);
}

TEST_CASE("Socket.a_stop_requested_before_makes_no_request") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    std::byte one{};
    stop_source stopped;
    stopped.request_stop();
    const auto started = home->stats().operations_started;
    const auto got = sync_wait(*home, read_some_of(pair.client, {&one, 1}), stopped.token());
    CHECK(got.error() == condition::canceled);
    CHECK(home->stats().operations_started == started);
}

TEST_CASE("Socket.a_canceled_read_tells_how_many_bytes_it_took") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    const auto sent = pattern(1000);
    REQUIRE(run(*home, write_all_of(pair.client, sent)));
    std::vector<std::byte> got(4000);
    const auto body = [](stream& s, std::span<std::byte> into, std::size_t& progress) -> task<result<void>> {
        detail::stream_receive_exactly reading = s.read(into);
        auto done = co_await reading;
        progress = reading.progress_bytes();
        co_return done;
    };
    std::size_t progress = 0;
    CHECK(run_for(*home, 20ms, body(pair.server, got, progress)).error() == condition::canceled);
    CHECK(progress == 1000);
    CHECK(std::equal(sent.begin(), sent.end(), got.begin()));
    // Nothing was lost: the stream goes on behind them.
    REQUIRE(run(*home, write_all_of(pair.client, sent)));
    REQUIRE(run(*home, read_of(pair.server, std::span(got).first(1000))));
    CHECK(std::equal(sent.begin(), sent.end(), got.begin()));
}

TEST_CASE("Socket.abandon_ends_an_operation_without_a_stop_token") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    std::vector<std::byte> buffer(1000);
    detail::stream_receive_exactly reading = pair.server.read(buffer);
    const auto reader = [](detail::stream_receive_exactly& op) -> task<result<void>> { co_return co_await op; };
    const auto breaker = [](detail::stream_receive_exactly& op) -> task<result<void>> {
        executor& here = co_await this_executor();
        op.abandon(here);
        co_return result<void>{};
    };
    auto [read, broke] = run(*home, when_all(reader(reading), breaker(reading)));
    CHECK(read.error() == condition::canceled);
    CHECK(broke);
}

TEST_CASE("Socket.a_reset_of_the_peer_ends_reads_and_writes_as_closed") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    pair.client.reset();
    std::byte one{};
    const auto got = run(*home, read_some_of(pair.server, {&one, 1}));
    REQUIRE_FALSE(got);
    CHECK(got.error() == std::errc::connection_reset);
    CHECK(got.error() == condition::closed);
    const auto wrote = run(*home, write_all_of(pair.server, {&one, 1}));
    REQUIRE_FALSE(wrote); // and no SIGPIPE
    CHECK(wrote.error() == condition::closed);
}

TEST_CASE("Socket.half_close_ends_one_direction_only") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    const auto sent = pattern(5000);
    std::vector<std::byte> got(sent.size());
    REQUIRE(run(*home, write_all_of(pair.client, sent)));
    REQUIRE(pair.client.shutdown_send());
    CHECK(run(*home, read_of(pair.server, got)));
    CHECK(got == sent);
    CHECK(must(run(*home, read_some_of(pair.server, got))) == 0);
    CHECK(run(*home, read_of(pair.server, got)).error() == errc::end_of_file);
    REQUIRE(run(*home, write_all_of(pair.server, sent)));
    std::ranges::fill(got, std::byte{});
    CHECK(run(*home, read_of(pair.client, got)));
    CHECK(got == sent);
    // Both have ended now; a further shutdown is none of the caller's business.
    REQUIRE(pair.server.shutdown_send());
    CHECK(pair.server.shutdown_send());
}

TEST_CASE("Socket.shutdown_of_both_directions_wakes_what_waits") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    std::byte one{};
    const auto breaker = [](stream_socket& s) -> task<result<void>> {
        s.shutdown_both();
        co_return result<void>{};
    };
    auto [got, broke] =
        run(*home, when_all(read_some_of(pair.client, std::span(&one, 1)), breaker(pair.client)));
    REQUIRE(got);
    CHECK(*got == 0);
    CHECK(broke);
}

TEST_CASE("Socket.closing_sends_the_end_and_frees_the_number") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    const int number = pair.client.fd();
    std::byte one{};
    CHECK(run_for(*home, 1ms, read_some_of(pair.client, std::span(&one, 1))).error() == condition::canceled);
    pair.client.close();
    CHECK(fcntl(number, F_GETFD) == -1);
    CHECK(must(run(*home, read_some_of(pair.server, {&one, 1}))) == 0);
}

TEST_CASE("Socket.descriptors_block_and_do_not_leak_into_programs") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    for (const int fd : {pair.client.fd(), pair.server.fd()}) {
        CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
        CHECK(option_of(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    }
}

TEST_CASE("Socket.a_peer_timeout_sets_keep_alive_and_the_user_timeout") {
    const auto home = make_executor();
    auto pair = connected_pair(*home, "tcp://127.0.0.1:0");
    REQUIRE(pair.client.set_peer_timeout(20s));
    CHECK(option_of(pair.client.fd(), SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option_of(pair.client.fd(), IPPROTO_TCP, TCP_KEEPIDLE) == 10);
    CHECK(option_of(pair.client.fd(), IPPROTO_TCP, TCP_KEEPINTVL) == 3);
    CHECK(option_of(pair.client.fd(), IPPROTO_TCP, TCP_KEEPCNT) == 3);
    CHECK(option_of(pair.client.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT) == 20'000);
    CHECK(pair.client.set_peer_timeout(1s));
    CHECK(pair.client.set_peer_timeout(24h * 365 * 200));
    auto local = connected_pair(*home, "tcp://@sluice-peer-timeout-" + std::to_string(getpid()));
    CHECK(local.client.set_peer_timeout(20s));
}

TEST_CASE("Socket.names_are_looked_up_off_the_executor") {
    const auto home = make_executor();
    const auto found = run(*home, resolve(at("tcp://localhost:7471")));
    REQUIRE(found);
    REQUIRE_FALSE(found->empty());
    for (const endpoint& e : *found) CHECK(e.port() == 7471);
    // No name service is asked for a part this long, so the answer doesn't depend on the network.
    const std::string impossible(64, 'x');
    const auto missing = run(*home, resolve({.scheme = scheme::tcp, .host = impossible, .scope = {}, .unix_path = {}}));
    REQUIRE_FALSE(missing);
    CHECK(missing.error() == condition::not_found);
    CHECK(missing.error().message().find("name \"" + impossible + "\"") != std::string::npos);
}

TEST_CASE("Socket.scopes_are_interface_names_or_numbers") {
    const auto named = numeric_endpoint(at("tcp://[fe80::1%lo]:7471"));
    REQUIRE(named);
    CHECK((*named)->to_address(scheme::tcp) == at("tcp://[fe80::1%lo]:7471"));
    const auto number = numeric_endpoint(at("tcp://[fe80::1%1]:7471"));
    REQUIRE(number);
    CHECK((*number)->to_address(scheme::tcp) == at("tcp://[fe80::1%lo]:7471"));
    const auto missing = numeric_endpoint(at("tcp://[fe80::1%nosuchif]:7471"));
    REQUIRE_FALSE(missing);
    CHECK(missing.error() == errc::invalid_address);
    CHECK(missing.error().message().find("\"nosuchif\"") != std::string::npos);
}
