#include "rdma/device_list.hpp"
#include "rdma/fork.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <sys/wait.h>
#include <unistd.h>

using namespace sluice;
using namespace sluice::testing;

namespace {

/// What `child` returns in a child of this process.
template <class Child>
std::string in_a_child(Child child) {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        const std::string said = child();
        const bool whole = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
        _exit(whole ? 0 : 1);
    }
    close(ends[1]);
    std::string said;
    std::array<char, 512> some{};
    for (ssize_t got = 0; (got = read(ends[0], some.data(), some.size())) > 0;)
        said.append(some.data(), static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0); // neither killed nor failed
    return said;
}

template <class T>
std::string text_of(const result<T>& r) {
    return r                                     ? "succeeded"
           : r.error() == condition::unsupported ? r.error().message()
                                                 : "another: " + r.error().message();
}

bool names_cause_and_remedy(const std::string& text, const std::string& what) {
    UNSCOPED_INFO(text);
    const std::string parent = "process " + std::to_string(getpid()) + " used RDMA before it forked this one";
    return text.starts_with(what) && text.find(parent) != std::string::npos &&
           text.find("fork before the first use of RDMA, or exec") != std::string::npos;
}

} // namespace

TEST_CASE("Rdma_fork.the_first_process_that_uses_it_is_the_one_that_may") {
    rdma::using_process one;
    check_ok(one.claim(10));
    check_ok(one.claim(10));
    const auto other = one.claim(11);
    REQUIRE_FALSE(other);
    CHECK(mentions(other.error(), "process 10 used RDMA"));
    one.forget();
    check_ok(one.claim(11));
}

TEST_CASE("Rdma_fork.a_child_is_told_why_it_can_not_use_what_its_parent_uses") {
    two_ends ends;
    ends.world.automatic(true);
    check_ok(ends.listen());
    const auto meet = [](two_ends& e) -> task<std::array<std::unique_ptr<provider_connection>, 2>> {
        auto [client, server] = co_await when_all(e.connect(), e.listener->accept());
        check_ok(client);
        check_ok(server);
        std::array<std::unique_ptr<provider_connection>, 2> both;
        if (client && server) both = {std::move(*client), std::move(*server)};
        co_return both;
    };
    auto both = ends.run(meet(ends));
    REQUIRE(both[1] != nullptr);
    const auto calls = ends.world.calls();
    const std::string at = ends.there().to_string();
    CHECK(names_cause_and_remedy(in_a_child([] { return text_of(rdma::list_devices()); }), "rdma: process"));
    CHECK(names_cause_and_remedy(in_a_child([&] { return text_of(ends.run(ends.connect())); }),
                                 "connect to " + at + ": rdma: "));
    const auto listens = [&] {
        return text_of(ends.run(rdma::rdma_listen(*address::parse("rdma://10.0.0.1:0"), {}, {})));
    };
    CHECK(names_cause_and_remedy(in_a_child(listens), "listen on rdma://10.0.0.1:0: rdma: "));
    const auto shares = [&] { return text_of(ends.run(both[0]->share({}, access::remote_read))); };
    CHECK(names_cause_and_remedy(in_a_child(shares), "share: rdma: "));
    CHECK(ends.world.calls() == calls);
    const auto close = [](provider_connection& one, provider_connection& other) -> task<void> {
        auto [here, there] = co_await when_all(one.close(), other.close()); // the parent has all that it had
        check_ok(here);
        check_ok(there);
    };
    ends.run(close(*both[0], *both[1]));
}
