#include "tests/rdma/both_ends.hpp"

#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>

// What is on its way while an end says goodbye: both ends are honest, so both must end well.

using namespace sluice;
using namespace sluice::testing;

namespace {

constexpr std::size_t large = 8192; // is offered first

/// What a case needs: memory of each end, and how everything ended.
struct crossing {
    two_ends& world;
    both_ends ends;
    some_memory of_client{large};
    some_memory of_server{large};
    std::optional<shared_region> shared{};
    outcome client_does{}, server_does{};
};

/// What both did before, in a world that executes, and what they do while nothing arrives, before the client closes.
struct one_case {
    const char* name;
    task<void> (*before)(crossing&, scope&);
    task<void> (*meanwhile)(crossing&, scope&);
    std::optional<errc> client_ends, server_ends;
};

task<void> nothing(crossing&, scope&) { co_return; }

task<void> server_shares(crossing& c, scope& s) {
    s.spawn(shares(c.ends.server, c.of_server.view(), access::remote_read, c.server_does));
    const bool told = co_await until([&c] { return !c.world.world.waiting(c.ends.of_server).empty(); });
    CHECK(told);
}
task<void> server_shared(crossing& c, scope&) {
    co_await shares(c.ends.server, c.of_server.view(), access::remote_read, c.server_does, &c.shared);
}
task<void> server_revokes(crossing& c, scope&) {
    c.shared->revoke();
    co_return;
}
task<void> client_shared(crossing& c, scope&) {
    co_await shares(c.ends.client, c.of_client.view(), access::remote_write, c.client_does, &c.shared);
}
task<void> server_writes(crossing& c, scope& s) {
    s.spawn(writes_with_immediate(c.ends.server, c.shared->description(), c.of_server.view(), c.server_does));
    co_return;
}
task<void> server_sends_to_a_receive(crossing& c, scope& s) {
    s.spawn(receives(c.ends.client, c.of_client.view(), c.client_does));
    s.spawn(sends(c.ends.server, c.of_server.view().first(10), c.server_does));
    co_return;
}
task<void> server_offers(crossing& c, scope& s) {
    s.spawn(sends(c.ends.server, c.of_server.view(), c.server_does));
    co_return;
}
task<void> server_offers_to_a_receive(crossing& c, scope& s) {
    s.spawn(receives(c.ends.client, c.of_client.view(), c.client_does));
    s.spawn(sends(c.ends.server, c.of_server.view(), c.server_does));
    co_return;
}
task<void> client_receives(crossing& c, scope& s) {
    s.spawn(receives(c.ends.client, c.of_client.view(), c.client_does));
    co_return;
}
task<void> client_offered(crossing& c, scope& s) {
    s.spawn(sends(c.ends.client, c.of_client.view(), c.client_does));
    co_return;
}
task<void> client_offered_and_gave_up(crossing& c, scope&) {
    scope offers;
    offers.spawn(sends(c.ends.client, c.of_client.view(), c.client_does));
    co_await settle();
    offers.request_stop();
    static_cast<void>(co_await offers.join());
}
task<void> server_receives(crossing& c, scope& s) {
    s.spawn(receives(c.ends.server, c.of_server.view(), c.server_does));
    co_return;
}
task<void> server_receives_too_little(crossing& c, scope& s) {
    s.spawn(receives(c.ends.server, c.of_server.view().first(10), c.server_does));
    co_return;
}

void check_how(const result<void>& how, std::optional<errc> expected) {
    if (!how) UNSCOPED_INFO(how.error().message());
    REQUIRE(how.has_value() == !expected.has_value());
    if (expected) CHECK(how.error() == *expected);
}

task<void> run_case(two_ends& world, const one_case& what, bool both_close) {
    auto ends = co_await meet(world);
    crossing c{world, std::move(ends)};
    scope all;
    co_await what.before(c, all);
    co_await settle();
    world.world.automatic(false);
    outcome client_closed, server_closed;
    co_await what.meanwhile(c, all);
    all.spawn(closes(c.ends.client, client_closed));
    if (both_close) all.spawn(closes(c.ends.server, server_closed));
    else all.spawn(waits_for_the_end(c.ends.server, server_closed));
    co_await settle();
    world.world.automatic(true);
    const auto joined = co_await all.join();
    check_ok(joined);
    check_ended(client_closed);
    check_ended(server_closed);
    if (both_close) co_return; // what the server's goodbye came before is another thing
    if (c.client_does) check_how(*c.client_does, what.client_ends);
    if (c.server_does) check_how(*c.server_does, what.server_ends);
}

} // namespace

TEST_CASE("Goodbye.crosses_whatever_the_peer_sends") {
    const one_case cases[] = {
        {"shared", nothing, server_shares, {}, errc::closed},
        {"revoked", server_shared, server_revokes, {}, {}},
        {"message", nothing, server_sends_to_a_receive, {}, {}},
        {"immediate", client_shared, server_writes, {}, {}},
        {"offer", nothing, server_offers, {}, errc::closed},
        {"offer, for which a receive waits", nothing, server_offers_to_a_receive, errc::closed, errc::closed},
        {"fragment", server_offers, client_receives, {}, {}},
        {"accept", client_offered, server_receives, errc::closed, errc::closed},
        {"accept of what was given up", client_offered_and_gave_up, server_receives, errc::canceled, errc::closed},
        {"accept of nothing", client_offered, server_receives_too_little, {}, errc::message_too_long},
        {"nothing", nothing, nothing, {}, {}},
    };
    for (const auto& each : cases)
        for (const bool both_close : {false, true}) {
            INFO(each.name << (both_close ? ", both close" : ""));
            two_ends world;
            world.world.automatic(true);
            check_ok(world.listen());
            world.run(run_case(world, each, both_close));
        }
}
