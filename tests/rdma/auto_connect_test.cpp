#include "net/auto_connect.hpp"

#include "net/auto_listener.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/stream.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cerrno>
#include <cstdint>
#include <string>

using namespace sluice;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

/// A listener over both, or over TCP only, and who connects by either.
struct auto_ends : two_ends {
    result<void> listen(bool over_rdma) {
        const address on = *address::parse(over_rdma ? "auto://127.0.0.1:0" : "tcp://127.0.0.1:0");
        const detail::provider_setup setup{.choice = {}, .owner = 22};
        auto made = over_rdma ? run(net::auto_listen(on, {}, setup, false))
                              : run(detail::provider_of(scheme::tcp)->listen(on, {}, setup));
        if (!made) return std::move(made).error();
        listener = std::move(*made);
        return {};
    }
    task<connected> connect_by_either() const { return by_either(there(), {}); }
    static task<connected> by_either(address to, connection_options options) {
        to.scheme = scheme::automatic;
        return net::auto_connect(std::move(to), options, {.choice = {}, .owner = 11});
    }
};

/// What the connecting end says of its choice, or the error.
task<std::string> chosen(auto_ends& ends) {
    auto [client, server] = co_await when_all(ends.connect_by_either(), ends.listener->accept());
    check_ok(client);
    check_ok(server);
    if (!client) co_return client.error().message();
    co_return (*client)->choice();
}

} // namespace

TEST_CASE("Auto_connect.takes_rdma_where_both_ends_have_it_and_else_tcp") {
    const bool rdma = GENERATE(true, false);
    auto_ends ends;
    check_ok(ends.listen(rdma));
    const std::string choice = ends.run(chosen(ends));
    CHECK(choice.starts_with(rdma ? "rdma: both ends have it" : "tcp: connect to auto://127.0.0.1:"));
    if (!rdma) CHECK(choice.find("nobody listens there") != std::string::npos);
}

TEST_CASE("Auto_connect.takes_tcp_whatever_fails_on_the_way_over_rdma") {
    const char* const calls[] = {"create_id", "resolve_addr", "resolve_route", "get_devices", "alloc_pd", "create_cq",
                                 "create_qp", "connect",      "make_ready"};
    for (const char* const call : calls) {
        auto_ends ends;
        check_ok(ends.listen(true));
        for (std::uint64_t nth = 1; nth <= 40; ++nth) ends.world.fail(call, nth, ENOMEM); // smaller is tried as well
        INFO(call);
        const std::string choice = ends.run(chosen(ends));
        INFO(choice);
        CHECK(ends.world.failed() == call);
        CHECK(choice.starts_with("tcp: connect to auto://127.0.0.1:"));
    }
}

TEST_CASE("Auto_connect.both_together_have_the_connect_timeout") {
    two_ends ends;
    ends.world.hold("resolve_addr");
    const auto body = []() -> task<connected> {
        auto silent = co_await stream_listener::listen(*address::parse("tcp://127.0.0.1:0")); // takes it, and never answers
        REQUIRE(silent);
        const connection_options options{.connect_timeout = 2s};
        auto made = co_await auto_ends::by_either(silent->address(), options);
        co_return made;
    };
    const auto made = ends.run(body());
    check_error(made, condition::timed_out);
    const std::string text(made.error().detail());
    INFO(text);
    const auto at = text.find("not done within ");
    REQUIRE(at != std::string::npos);
    CHECK(std::stoi(text.substr(at + 16)) <= 1000); // what RDMA has left
}

TEST_CASE("Auto_connect.does_not_wait_long_for_a_peer_that_does_not_answer_over_rdma") {
    auto_ends ends;
    check_ok(ends.listen(false));
    ends.world.hold("resolve_addr");
    const auto body = [](auto_ends& e) -> task<std::string> {
        const connection_options options{.connect_timeout = std::chrono::hours(1)};
        auto [client, server] = co_await when_all(auto_ends::by_either(e.there(), options), e.listener->accept());
        check_ok(server);
        if (!client) co_return client.error().message();
        co_return (*client)->choice();
    };
    const std::string choice = ends.run(body(ends));
    INFO(choice);
    CHECK(choice.starts_with("tcp: "));
    CHECK(choice.find("not done within 2000 ms") != std::string::npos);
}

TEST_CASE("Auto_connect.ends_when_it_is_stopped_and_does_not_go_on_over_tcp") {
    auto_ends ends;
    check_ok(ends.listen(false));
    ends.world.hold("resolve_addr");
    stop_source stop;
    const auto body = [](auto_ends& e, stop_source& s) -> task<connected> {
        const auto stop_later = [](auto_ends& of, stop_source& source) -> task<void> {
            const bool asked = co_await until([&] { return of.world.calls("resolve_addr") == 1; });
            CHECK(asked);
            source.request_stop();
        };
        scope both;
        both.spawn(stop_later(e, s));
        auto made = co_await e.connect_by_either();
        static_cast<void>(co_await both.join());
        co_return made;
    };
    check_error(ends.run(body(ends, stop), stop.token()), condition::canceled);
}
