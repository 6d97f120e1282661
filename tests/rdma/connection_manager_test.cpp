#include "rdma/connection_manager.hpp"

#include <sluice/blocking.hpp>
#include <sluice/event.hpp>
#include <sluice/scope.hpp>

#include "rdma/cm_wait.hpp"
#include "rdma/connection_manager_impl.hpp"
#include "rdma/handshake.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tests/support/run.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cerrno>
#include <functional>
#include <future>
#include <latch>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace sluice;
using namespace sluice::rdma;
using sluice::testing::check_error;
using sluice::testing::fake_verbs;
using sluice::testing::make_executor;

namespace {

constexpr std::array every_type{
    RDMA_CM_EVENT_ADDR_RESOLVED,  RDMA_CM_EVENT_ADDR_ERROR,      RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_ROUTE_ERROR,    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_CONNECT_ERROR,  RDMA_CM_EVENT_UNREACHABLE,     RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ESTABLISHED,    RDMA_CM_EVENT_DISCONNECTED,    RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_ADDR_CHANGE,
    RDMA_CM_EVENT_TIMEWAIT_EXIT};

/// Notes what it hears, and does what the test says.
struct listening_observer final : cm_observer {
    std::vector<cm_event> heard;
    std::function<void(cm_id&)> then;
    event arrived;
    void on_cm_event(cm_id& id, cm_event e) noexcept override {
        heard.push_back(std::move(e));
        arrived.set();
        if (then) then(id);
    }
};

std::shared_ptr<connection_manager> manager_of(executor& home) {
    auto made = connection_manager::of(home);
    REQUIRE(made);
    return std::move(*made);
}

std::unique_ptr<cm_id> id_on(connection_manager& manager) {
    auto made = cm_id::create(manager);
    REQUIRE(made);
    return std::move(*made);
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(0x0a000001);
    return at;
}

/// Runs the loop until all queued events were looked at.
void settle(executor& home) {
    const auto body = []() -> task<void> {
        for (int i = 0; i < 6000; ++i) co_await yield();
    };
    sync_wait(home, body());
}

} // namespace

TEST_CASE("Connection_manager.is_one_for_an_executor_as_long_as_it_is_used") {
    fake_verbs world;
    const auto home = make_executor();
    auto first = manager_of(*home);
    CHECK(manager_of(*home) == first);
    CHECK(&first->home() == home.get());
    auto id = id_on(*first);
    const connection_manager* before = first.get();
    first.reset();
    CHECK(manager_of(*home).get() == before); // the id keeps it
    id.reset();
    CHECK(world.alive().event_channels == 0);
    CHECK(manager_of(*home) != nullptr);
}

TEST_CASE("Connection_manager.says_why_there_is_none") {
    fake_verbs world;
    const auto home = make_executor();
    const struct {
        int cause;
        const char* says;
    } cases[] = {{EACCES, "no permission for /dev/infiniband/rdma_cm"},
                 {ENODEV, "modprobe rdma_ucm"},
                 {EMFILE, "rdma_create_event_channel"}};
    for (const auto& each : cases) {
        world.fail("create_event_channel", 1, each.cause);
        const auto made = connection_manager::of(*home);
        REQUIRE_FALSE(made);
        CHECK(made.error() == std::error_code(each.cause, std::generic_category()));
        CHECK(made.error().message().find(each.says) != std::string::npos);
    }
    const auto manager = manager_of(*home);
    world.fail("create_id", 1, ENOMEM);
    check_error(cm_id::create(*manager), condition::out_of_resources);
}

TEST_CASE("Connection_manager.every_event_is_acknowledged_before_it_is_handed_out") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    for (const auto type : every_type) {
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) continue;
        auto id = id_on(*manager);
        listening_observer observer;
        std::size_t open = 1;
        observer.then = [&](cm_id&) { open = world.alive().unacknowledged; };
        id->observe(&observer);
        const std::array data{std::byte{7}, std::byte{8}};
        world.cm_event(id->get(), type, -5, data, 3, 4);
        settle(*home);
        INFO("event " << type);
        REQUIRE(observer.heard.size() == 1);
        CHECK(open == 0);
        CHECK(observer.heard[0].type == type);
        CHECK(observer.heard[0].status == -5);
        const bool carries = type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_REJECTED ||
                             type == RDMA_CM_EVENT_CONNECT_RESPONSE;
        CHECK(observer.heard[0].private_data ==
              (carries ? std::vector(data.begin(), data.end()) : std::vector<std::byte>{}));
        CHECK(observer.heard[0].responder_resources == (carries ? 3 : 0));
        CHECK(observer.heard[0].initiator_depth == (carries ? 4 : 0));
    }
}

TEST_CASE("Connection_manager.an_id_may_be_destroyed_where_its_event_is_heard") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    for (const auto type : every_type) {
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) continue;
        auto id =
            id_on(*manager_of(*home)); // the last one: the channel goes with it, under the coroutine that reads it
        listening_observer observer;
        observer.then = [&](cm_id&) { id.reset(); };
        id->observe(&observer);
        world.cm_event(id->get(), type);
        world.cm_event(id->get(), RDMA_CM_EVENT_TIMEWAIT_EXIT); // waits behind it and must not be heard
        settle(*home);
        CHECK(observer.heard.size() == 1);
        CHECK(world.alive().all() == 0);
    }
}

TEST_CASE("Connection_manager.events_that_nobody_hears_are_dropped") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    auto id = id_on(*manager);
    for (const auto type : every_type)
        if (type != RDMA_CM_EVENT_CONNECT_REQUEST) world.cm_event(id->get(), type);
    world.connect_request(id->get(), {});
    settle(*home);
    CHECK(world.alive().unacknowledged == 0);
    CHECK(world.alive().ids == 1); // the request went with its event
}

TEST_CASE("Connection_manager.a_request_comes_with_its_id_to_whom_listens") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    auto id = id_on(*manager);
    auto at = loopback(7471);
    REQUIRE(api().bind_addr(id->get(), reinterpret_cast<sockaddr*>(&at)) == 0);
    listening_observer observer;
    id->observe(&observer);
    const std::array data{std::byte{1}, std::byte{2}, std::byte{3}};
    world.connect_request(id->get(), data, 9, 5);
    settle(*home);
    REQUIRE(observer.heard.size() == 1);
    cm_event& e = observer.heard[0];
    CHECK(e.type == RDMA_CM_EVENT_CONNECT_REQUEST);
    REQUIRE(e.private_data.size() == 56); // padded
    CHECK(e.private_data[2] == std::byte{3});
    CHECK(e.responder_resources == 9);
    CHECK(e.initiator_depth == 5);
    REQUIRE(e.request != nullptr);
    CHECK(e.request->get() != id->get());
    CHECK(e.request->local_address() == "rdma://10.0.0.1:7471");
    // The listener may go first, and events of the new id are its own.
    id.reset();
    listening_observer other;
    e.request->observe(&other);
    world.cm_event(e.request->get(), RDMA_CM_EVENT_ESTABLISHED);
    settle(*home);
    CHECK(observer.heard.size() == 1);
    CHECK(other.heard.size() == 1);
}

TEST_CASE("Connection_manager.a_channel_that_fails_is_asked_again") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    auto id = id_on(*manager);
    listening_observer observer;
    id->observe(&observer);
    for (std::uint64_t nth = 1; nth <= 100; ++nth) world.fail("get_cm_event", nth, EIO);
    world.cm_event(id->get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    settle(*home);
    CHECK(world.calls("get_cm_event") <= 3); // not as often as it can
    world.fail_no_more();
    const auto body = [](listening_observer& o) -> task<result<void>> { co_return co_await o.arrived.wait(); };
    sluice::testing::check_ok(sync_wait(*home, body(observer)));
    CHECK(observer.heard.size() == 1);
}

TEST_CASE("Connection_manager.a_flood_of_events_lets_others_run_and_loses_none") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    auto id = id_on(*manager);
    listening_observer observer;
    id->observe(&observer);
    for (int i = 0; i < 1000; ++i) world.cm_event(id->get(), RDMA_CM_EVENT_ADDR_CHANGE, i);
    const auto body = [](listening_observer& o) -> task<std::size_t> {
        while (o.heard.empty()) co_await yield();
        co_return o.heard.size();
    };
    CHECK(sync_wait(*home, body(observer)) < 1000);
    settle(*home);
    REQUIRE(observer.heard.size() == 1000);
    for (int i = 0; i < 1000; ++i) CHECK(observer.heard[static_cast<std::size_t>(i)].status == i);
}

TEST_CASE("Connection_manager.an_id_is_destroyed_on_a_helper_thread_where_that_is_wanted") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    auto manager = manager_of(*home);
    auto id = id_on(*manager);
    listening_observer observer;
    id->observe(&observer);
    world.cm_event(id->get(), RDMA_CM_EVENT_DISCONNECTED);
    manager.reset();
    sync_wait(*home, cm_id::destroy(std::move(id)));
    CHECK(observer.heard.empty());
    CHECK(world.alive().all() == 0);
    static_cast<void>(cm_id::destroy(id_on(*manager_of(*home)))); // a task that never runs destroys it as well
    CHECK(world.alive().all() == 0);
}

TEST_CASE("Connection_manager.gets_no_events_while_another_thread_destroys_an_id") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    auto id = id_on(*manager);
    listening_observer observer;
    id->observe(&observer);
    const auto destroy = [](cm_silence& silence, std::latch& begun, std::latch& through) {
        return std::async(std::launch::async, [&] {
            const auto quiet = silence.begin();
            begun.count_down();
            through.wait();
        });
    };
    for (const int before : {0, 2000}) { // the watcher has begun to wait, or not
        observer.heard.clear();
        sync_wait(*home, sluice::testing::yields(before));
        std::latch begun{2}, first_is_through{1}, second_is_through{1};
        std::optional<cm_silence> first(std::in_place, *manager), second(std::in_place, *manager);
        auto one = destroy(*first, begun, first_is_through);
        auto two = destroy(*second, begun, second_is_through);
        begun.wait();
        world.cm_event(id->get(), RDMA_CM_EVENT_ADDR_CHANGE);
        settle(*home);
        first_is_through.count_down();
        one.get();
        first.reset();
        settle(*home);
        CHECK(observer.heard.empty());
        second_is_through.count_down();
        two.get();
        second.reset();
        settle(*home);
        CHECK(observer.heard.size() == 1);
    }
}

TEST_CASE("Connection_manager.events_are_got_while_a_destroying_waits_for_a_helper_thread") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto body = [](fake_verbs& w, executor& on) -> task<void> {
        const auto manager = manager_of(on);
        auto other = id_on(*manager);
        listening_observer observer;
        other->observe(&observer);
        std::latch names{1};
        scope all;
        const auto slow = [](std::latch& until) -> task<void> { co_await run_blocking([&until] { until.wait(); }); };
        for (int i = 0; i < 4; ++i) all.spawn(slow(names)); // as many as there are threads
        co_await sluice::testing::yields(100);
        all.spawn(cm_id::destroy(id_on(*manager)));
        co_await sluice::testing::yields(100);
        w.cm_event(other->get(), RDMA_CM_EVENT_ADDR_RESOLVED);
        co_await sluice::testing::yields(6000);
        CHECK(w.calls("destroy_id") == 0);
        CHECK(observer.heard.size() == 1);
        names.count_down();
        static_cast<void>(co_await all.join());
    };
    sync_wait(*home, body(world, *home));
}

TEST_CASE("Cm_wait.hands_out_events_in_order_and_ends_when_stopped") {
    fake_verbs world;
    world.add_device();
    const auto home = make_executor();
    const auto manager = manager_of(*home);
    cm_wait events;
    auto id = id_on(*manager);
    id->observe(&events);
    world.cm_event(id->get(), RDMA_CM_EVENT_ADDR_CHANGE);
    world.cm_event(id->get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    const auto body = [](cm_wait& w) -> task<void> {
        const auto got = co_await w.expect(RDMA_CM_EVENT_ADDR_RESOLVED); // passes over what says nothing
        sluice::testing::check_ok(got);
    };
    sync_wait(*home, body(events));
    const auto stopper = [](stop_source& s, cm_wait& w) -> task<result<cm_event>> {
        scope both;
        const auto later = [](stop_source& at) -> task<void> {
            co_await sluice::testing::yields(20);
            at.request_stop();
        };
        both.spawn(later(s));
        auto none = co_await w.next();
        static_cast<void>(co_await both.join());
        co_return none;
    };
    stop_source stop;
    check_error(sync_wait(*home, stopper(stop, events), stop.token()), condition::canceled);
}

TEST_CASE("Cm_wait.every_failing_event_has_its_error") {
    const struct {
        rdma_cm_event_type type;
        int status;
        int code;
        const char* says;
    } cases[] = {
        {RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, EHOSTUNREACH, "address resolution: no RDMA device leads there"},
        {RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL, EHOSTUNREACH, "route resolution"},
        {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, EHOSTUNREACH, "nobody answers (status -110: Connection timed out)"},
        {RDMA_CM_EVENT_REJECTED, 8, ECONNREFUSED, "nobody listens there (reject reason 8)"},
        {RDMA_CM_EVENT_REJECTED, 10, EAGAIN, "still has a connection of this queue pair's number"},
        {RDMA_CM_EVENT_REJECTED, 28, ECONNREFUSED, "nobody listens there, or takes no more (reject reason 28)"},
        {RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM, ENOMEM, "connection request: it failed"},
        {RDMA_CM_EVENT_CONNECT_ERROR, 3, ECONNABORTED, "status 3"},
        {RDMA_CM_EVENT_CONNECT_ERROR, -1, ECONNABORTED, "it failed (status -1: a step on this side failed)"},
        {RDMA_CM_EVENT_ADDR_ERROR, -1, EHOSTUNREACH, "status -1: a step on this side failed"},
        {RDMA_CM_EVENT_DISCONNECTED, 0, ECONNRESET, "the peer closed the connection"},
        {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, ENODEV, "the RDMA device was removed"},
        {RDMA_CM_EVENT_ADDR_RESOLVED, -EADDRNOTAVAIL, EADDRNOTAVAIL, "event 0"},
        {RDMA_CM_EVENT_ESTABLISHED, -EINVAL, EINVAL, "event 9"},
    };
    for (const auto& each : cases) {
        cm_event e;
        e.type = each.type;
        e.status = each.status;
        const auto why = failure_of(e);
        INFO(each.says);
        REQUIRE(why);
        INFO(why->message());
        CHECK(why->code() == std::error_code(each.code, std::generic_category()));
        CHECK(why->message().find(each.says) != std::string::npos);
    }
    for (const auto type : every_type) {
        cm_event e;
        e.type = type;
        const bool fine = type != RDMA_CM_EVENT_ADDR_ERROR && type != RDMA_CM_EVENT_ROUTE_ERROR &&
                          type != RDMA_CM_EVENT_UNREACHABLE && type != RDMA_CM_EVENT_REJECTED &&
                          type != RDMA_CM_EVENT_CONNECT_ERROR && type != RDMA_CM_EVENT_DISCONNECTED &&
                          type != RDMA_CM_EVENT_DEVICE_REMOVAL;
        CHECK(failure_of(e).has_value() == !fine);
    }
}

TEST_CASE("Cm_wait.a_rejection_says_what_the_peer_said") {
    const auto told = [](greeting::refusal why) {
        greeting no;
        no.what = greeting::kind::reject;
        no.why = why;
        const auto bytes = no.encode();
        cm_event e;
        e.type = RDMA_CM_EVENT_REJECTED;
        e.status = 28;
        e.private_data.assign(bytes.begin(), bytes.end());
        e.private_data.resize(148);
        return e;
    };
    CHECK(*failure_of(told(greeting::refusal::version)) == errc::version_mismatch);
    CHECK(*failure_of(told(greeting::refusal::busy)) == condition::busy);
    CHECK(*failure_of(told(greeting::refusal::no_resources)) == condition::out_of_resources);
    CHECK(*failure_of(told(greeting::refusal::malformed)) == condition::protocol_error);
    auto other_version = told(greeting::refusal::version);
    other_version.private_data[4] = std::byte{9};
    CHECK(failure_of(other_version)->message().find("version 9") != std::string::npos);
    auto foreign = told(greeting::refusal::busy);
    foreign.private_data[0] = std::byte{'X'};
    CHECK(*failure_of(foreign) == errc::protocol_error);
    cm_event padding;
    padding.type = RDMA_CM_EVENT_REJECTED;
    padding.private_data.resize(148);
    CHECK(failure_of(padding)->code() == std::error_code(ECONNREFUSED, std::generic_category()));
}
