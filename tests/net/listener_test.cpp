#include <sluice/executor.hpp>
#include <sluice/log.hpp>
#include <sluice/stream.hpp>
#include <sluice/when_all.hpp>

#include "net/socket.hpp"
#include "net/tcp_listener.hpp"
#include "tests/net/socket_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace sluice;
using sluice::testing::make_executor;
using sluice::testing::must;
using sluice::testing::run;
using sluice::testing::run_for;

namespace {

address at(std::string_view text) { return must(address::parse(text)); }

/// Lets the process have no more descriptors than it has now, until it goes.
class descriptor_shortage {
public:
    descriptor_shortage() {
        REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
        const int next = open("/dev/null", O_RDONLY | O_CLOEXEC); // the lowest free number
        REQUIRE(next >= 0);
        close(next);
        rlimit now = before_;
        now.rlim_cur = static_cast<rlim_t>(next);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &now) == 0);
    }
    ~descriptor_shortage() { end(); }
    descriptor_shortage(const descriptor_shortage&) = delete;
    descriptor_shortage& operator=(const descriptor_shortage&) = delete;
    void end() noexcept { static_cast<void>(setrlimit(RLIMIT_NOFILE, &before_)); }

private:
    rlimit before_{};
};

} // namespace

TEST_CASE("Listener.tells_the_port_that_the_kernel_picked") {
    const auto home = make_executor();
    for (const char* text : {"auto://127.0.0.1:0", "tcp://[::1]:0", "tcp://[::]:0"}) {
        const auto listener = must(run(*home, stream_listener::listen(at(text))));
        CHECK(listener.address().port != 0);
        address expected = at(text);
        expected.port = listener.address().port;
        CHECK(listener.address() == expected);
    }
}

TEST_CASE("Listener.an_address_in_use_is_named") {
    const auto home = make_executor();
    const std::string unix_name = "tcp://@sluice-in-use-" + std::to_string(getpid());
    for (const std::string& text : {std::string("tcp://127.0.0.1:0"), unix_name}) {
        const auto first = must(run(*home, stream_listener::listen(at(text))));
        const auto second = run(*home, stream_listener::listen(first.address()));
        REQUIRE_FALSE(second);
        CHECK(second.error() == condition::busy);
        CHECK(second.error().message().find("listen on " + first.address().to_string()) != std::string::npos);
    }
}

TEST_CASE("Listener.an_address_of_another_machine_is_named") {
    const auto home = make_executor();
    const auto made = run(*home, stream_listener::listen(at("tcp://192.0.2.1:7471")));
    REQUIRE_FALSE(made);
    CHECK(made.error() == std::errc::address_not_available);
    CHECK(made.error().message().find("listen on tcp://192.0.2.1:7471") != std::string::npos);
}

TEST_CASE("Listener.takes_over_a_unix_path_whose_owner_died_and_no_other") {
    const auto home = make_executor();
    const std::string path = "/tmp/sluice-listener-test-" + std::to_string(getpid());
    {
        const auto alive = must(run(*home, stream_listener::listen(at("tcp://" + path))));
        const auto second = run(*home, stream_listener::listen(at("tcp://" + path)));
        CHECK(second.error() == condition::busy);
        CHECK(second.error().message().find("another process listens there") != std::string::npos);
        CHECK(::access(path.c_str(), F_OK) == 0);
        // What a killed process leaves behind: the path without a listener.
        const auto left = must(net::listening_socket(**net::numeric_endpoint(at("tcp://" + path + ".dead")), {}));
    }
    CHECK(::access(path.c_str(), F_OK) != 0);
    REQUIRE(::access((path + ".dead").c_str(), F_OK) == 0);
    CHECK(run(*home, stream_listener::listen(at("tcp://" + path + ".dead"))));
    CHECK(::access((path + ".dead").c_str(), F_OK) != 0);

    const int plain = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(plain >= 0);
    close(plain);
    const auto over_a_file = run(*home, stream_listener::listen(at("tcp://" + path)));
    CHECK(over_a_file.error() == condition::busy);
    CHECK(over_a_file.error().message().find("listen on tcp://" + path + ": a file is there") == 0);
    const auto over_a_folder = run(*home, stream_listener::listen(at("tcp:///tmp")));
    CHECK(over_a_folder.error().message().find("listen on tcp:///tmp: a directory is there") == 0);
    CHECK(unlink(path.c_str()) == 0); // a file that is no socket was left alone
}

TEST_CASE("Listener.several_share_a_port_when_asked_to") {
    const auto home = make_executor();
    const stream_listen_options shared{.reuse_port = true};
    const auto first = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"), shared)));
    CHECK(run(*home, stream_listener::listen(first.address(), shared)));
    CHECK(run(*home, stream_listener::listen(first.address())).error() == condition::busy);
}

TEST_CASE("Listener.any_ipv6_address_takes_ipv4_too") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://[::]:0"))));
    const auto port = std::to_string(listener.address().port);
    CHECK(run(*home, stream::connect(at("tcp://127.0.0.1:" + port))));
    CHECK(run(*home, stream::connect(at("tcp://[::1]:" + port))));
}

TEST_CASE("Listener.waits_without_spinning_while_descriptors_are_short") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    auto client = must(run(*home, stream::connect(listener.address())));

    descriptor_shortage shortage;
    const auto before = home->stats();
    CHECK(run_for(*home, 300ms, listener.accept()).error() == condition::canceled);
    const auto after = home->stats();
    CHECK(after.operations_started - before.operations_started >= 3); // it asks again
    CHECK(after.operations_started - before.operations_started <= 12);
    CHECK(after.turns - before.turns <= 60);

    shortage.end();
    auto server = run(*home, listener.accept());
    REQUIRE(server);
    const auto echo = [](stream& from, stream& to) -> task<result<std::byte>> {
        const std::byte sent{42};
        std::byte got{};
        if (auto wrote = co_await from.write_all({&sent, 1}); !wrote) co_return std::move(wrote).error();
        if (auto read = co_await to.read({&got, 1}); !read) co_return std::move(read).error();
        co_return got;
    };
    CHECK(must(run(*home, echo(client, *server))) == std::byte{42});
}

TEST_CASE("Listener.says_that_descriptors_are_short") {
    std::vector<std::string> said;
    const auto take = [](void* context, sluice::log_level, std::string_view message) noexcept {
        static_cast<std::vector<std::string>*>(context)->emplace_back(message);
    };
    const auto home = make_executor();
    auto listening = sluice::net::tcp_listen(at("tcp://127.0.0.1:0"), {}, {});
    auto listener = must(run(*home, std::move(listening)));
    const std::string address = listener->address().to_string();
    const auto client = must(run(*home, stream::connect(listener->address())));
    sluice::set_log_handler(take, &said);
    descriptor_shortage shortage;
    CHECK(run_for(*home, 100ms, listener->accept()).error() == condition::canceled);
    shortage.end();
    sluice::set_log_handler(nullptr, nullptr);
    REQUIRE(said.size() == 1); // however often it tries
    CHECK(said[0].find("accept on " + address + ": Too many open files") == 0);
    CHECK(said[0].find("ulimit -n") != std::string::npos);
    const auto end = [](std::unique_ptr<sluice::detail::provider_listener> l) -> task<bool> {
        l->close(); // on its executor
        co_return true;
    };
    CHECK(run(*home, end(std::move(listener))));
}

TEST_CASE("Listener.goes_on_when_the_shortage_ends_during_accept") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    const auto client = must(run(*home, stream::connect(listener.address())));
    descriptor_shortage shortage;
    const auto ender = [](descriptor_shortage& s) -> task<result<void>> {
        auto slept = co_await sleep_for(30ms);
        s.end();
        co_return slept;
    };
    auto [accepted, ended] = run(*home, when_all(listener.accept(), ender(shortage)));
    CHECK(accepted);
    CHECK(ended);
}

TEST_CASE("Listener.survives_peers_that_reset_while_they_wait") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    for (int i = 0; i < 8; ++i) {
        auto gone = net::stream_socket(must(run(*home, stream::connect(listener.address()))));
        gone.reset();
    }
    const auto client = must(run(*home, stream::connect(listener.address())));
    const auto wanted = must(client.local_address());
    for (int i = 0;; ++i) {
        REQUIRE(i < 9);
        const auto peer = must(run(*home, listener.accept())).peer_address();
        if (peer && *peer == wanted) break;
    }
}

TEST_CASE("Listener.accepts_a_hundred_peers_and_gives_each_its_turn") {
    const auto home = make_executor();
    auto listener = must(run(*home, stream_listener::listen(at("tcp://127.0.0.1:0"))));
    const auto many_connect = [](address to, std::vector<stream>& into) -> task<result<void>> {
        while (into.size() < 100) {
            auto made = co_await stream::connect(to);
            if (!made) co_return std::move(made).error();
            into.push_back(std::move(*made));
        }
        co_return result<void>{};
    };
    const auto many_accept = [](stream_listener& from, std::vector<stream>& into) -> task<result<void>> {
        while (into.size() < 100) {
            auto made = co_await from.accept();
            if (!made) co_return std::move(made).error();
            into.push_back(std::move(*made));
        }
        co_return result<void>{};
    };
    std::vector<stream> clients;
    std::vector<stream> servers;
    auto [connected, accepted] =
        run(*home, when_all(many_connect(listener.address(), clients), many_accept(listener, servers)));
    REQUIRE(connected);
    REQUIRE(accepted);
    for (std::size_t i = 0; i < 100; ++i)
        CHECK(must(clients[i].local_address()) == must(servers[i].peer_address()));
}
