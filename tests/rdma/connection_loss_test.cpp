#include "tests/rdma/set_up_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <functional>

// Why a connection says that it has ended, when the peer said nothing.

using namespace sluice;
using namespace sluice::testing;

namespace {

/// What befalls the connecting end last.
enum class last { disconnected, work_failed, work_flushed, access_error, silence };

/// How a connection ends that this befalls after `before`.
error why_it_ended(two_ends& ends, const std::function<void()>& before, last what = last::disconnected) {
    const auto body = [](two_ends& e, const std::function<void()>& happens, last then) -> task<error> {
        auto [client, server] =
            co_await when_all(e.connect({.peer_timeout = std::chrono::seconds(1)}), e.listener->accept());
        check_ok(client);
        check_ok(server);
        ibv_qp* const qp = e.world.queue_pairs().front(); // of the client, with `ready` in flight
        const bool posted = co_await until([&] { return !e.world.waiting(qp).empty(); });
        CHECK(posted);
        happens();
        if (then == last::work_failed) e.world.complete(qp, 1, IBV_WC_GENERAL_ERR, EIO);
        else if (then == last::work_flushed) e.world.complete(qp, 1, IBV_WC_WR_FLUSH_ERR);
        else if (then == last::access_error) e.world.async_event(qp, IBV_EVENT_QP_ACCESS_ERR);
        else if (then == last::disconnected) e.world.cm_event(e.world.connects().back().id, RDMA_CM_EVENT_DISCONNECTED);
        const auto ended = co_await (*client)->closed();
        REQUIRE_FALSE(ended);
        co_return ended.error();
    };
    check_ok(ends.listen());
    return ends.run(body(ends, before, what));
}

} // namespace

TEST_CASE("Connection_loss.by_a_peer_that_left_names_the_peer") {
    two_ends ends;
    const error why = why_it_ended(ends, [] {});
    CHECK(why == errc::closed);
    CHECK(mentions(why, "the peer rdma://10.0.0.1:"));
    CHECK(mentions(why, "without a goodbye"));
}

TEST_CASE("Connection_loss.by_a_port_that_is_down_names_the_device_before_its_event_has_come") {
    two_ends ends;
    const error why = why_it_ended(ends, [&] { ends.world.port_state(ends.card, IBV_PORT_DOWN); });
    CHECK(why == errc::peer_lost);
    CHECK(mentions(why, "the port of the RDMA device fake0 went down"));
}

TEST_CASE("Connection_loss.by_a_device_that_does_not_answer_names_the_device") {
    two_ends ends;
    const error why = why_it_ended(ends, [&] { ends.world.fail("query_port", 1, EIO); });
    CHECK(why == errc::closed);
    CHECK(mentions(why, "the RDMA device fake0 failed or was removed"));
}

TEST_CASE("Connection_loss.by_work_that_fails_while_the_device_does_not_answer_is_not_the_peers_fault") {
    two_ends ends;
    const error why = why_it_ended(ends, [&] { ends.world.fail("query_port", 1, EIO); }, last::work_failed);
    CHECK(why == errc::closed);
    CHECK(mentions(why, "the RDMA device fake0 failed or was removed"));
}

TEST_CASE("Connection_loss.by_an_access_error_while_the_device_does_not_answer_is_not_the_peers_fault") {
    two_ends ends;
    const error why = why_it_ended(ends, [&] { ends.world.fail("query_port", 1, EIO); }, last::access_error);
    CHECK(why == errc::closed);
    CHECK(mentions(why, "the RDMA device fake0 failed or was removed"));
}

TEST_CASE("Connection_loss.by_work_that_fails_on_a_sound_device_says_how") {
    two_ends ends;
    const error why = why_it_ended(ends, [] {}, last::work_failed);
    CHECK(why == errc::protocol_error);
    CHECK(mentions(why, "IBV_WC_GENERAL_ERR"));
}

TEST_CASE("Connection_loss.by_an_address_that_was_removed_is_not_the_peers_fault_however_it_shows") {
    for (const last what : {last::disconnected, last::work_failed, last::work_flushed, last::access_error, last::silence}) {
        two_ends ends;
        CAPTURE(static_cast<int>(what));
        const error why = why_it_ended(ends, [&] { ends.world.remove_addresses(); }, what);
        CHECK(why == errc::peer_lost);
        CHECK(mentions(why, "the address of this end, rdma://10.0.0.1:"));
        CHECK(mentions(why, "was removed from this host"));
    }
}

TEST_CASE("Connection_loss.by_silence_names_the_peer_and_the_time") {
    two_ends ends;
    const error why = why_it_ended(ends, [] {}, last::silence);
    CHECK(why == errc::peer_lost);
    CHECK(mentions(why, "the peer rdma://10.0.0.1:"));
    CHECK(mentions(why, "gave no sign for 1000 ms (connection_options.peer_timeout)"));
}
