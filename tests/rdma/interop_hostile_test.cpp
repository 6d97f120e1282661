// Bare peers that break the protocol: our end says what was wrong, with the value, and keeps nothing.
#include "tests/conformance/buffer.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>

namespace sluice::rdma::testing {

namespace {

using bare::frame;
using conformance::buffer;
using conformance::must;
using conformance::must_fail;
using conformance::must_name;

constexpr std::size_t large_bytes = 5000;
constexpr std::uint16_t few_credits = 4;

// ---- what our end does meanwhile ----

/// Only waits.
task<void> idles(connection&) { co_return; }

task<void> sends_large(connection& c) {
    buffer b(large_bytes);
    must_fail(co_await c.send(b), condition::protocol_error);
}

task<void> receives_large(connection& c) {
    buffer b(large_bytes);
    must_fail(co_await c.receive(b), condition::protocol_error);
}

/// Something a bare peer does that it must not, and what our end's error then names.
struct misdeed {
    const char* name;
    std::vector<std::string> named;
    void (*commit)(bare::peer& p);
    task<void> (*meanwhile)(connection& c) = idles;
};

void exactly(bare::peer& p, frame f) {
    f.payload_bytes = static_cast<std::uint16_t>(f.payload.size());
    p.send_exactly(f);
}

frame with_payload(frame::kind type, std::size_t size) { return {.type = type, .payload = bare::pattern(size, 1)}; }

const misdeed frames_that_are_none[] = {
    {"a type that there is not", {"type = 238", "1..13"}, [](bare::peer& p) { exactly(p, {.type = 238}); }},
    {"type 0", {"type = 0", "1..13"}, [](bare::peer& p) { exactly(p, {.type = 0}); }},
    {"less than a header", {"length = 31", "32"}, [](bare::peer& p) { p.send_exactly(bare::pattern(31, 1)); }},
    {"a payload that is shorter than it says",
     {"payload_bytes = 10", "4"},
     [](bare::peer& p) {
         frame f = with_payload(frame::message, 4);
         f.payload_bytes = 10;
         p.send_exactly(f);
     }},
    {"a field that the type has not",
     {"key of offer = 7"},
     [](bare::peer& p) { exactly(p, {.type = frame::offer, .key = 7, .size = large_bytes}); }},
    {"a credit frame that gives nothing", {"credit = 0"}, [](bare::peer& p) { exactly(p, {.type = frame::credit}); }},
    {"a fragment of nothing",
     {"payload of fragment = 0"},
     [](bare::peer& p) { exactly(p, {.type = frame::fragment}); }},
    {"an access that there is not",
     {"access of shared = 9"},
     [](bare::peer& p) { exactly(p, {.type = frame::shared, .access = 9, .size = 1}); }},
    {"a region that wraps",
     {"size of shared = 4096"},
     [](bare::peer& p) { exactly(p, {.type = frame::shared, .access = 1, .size = 4096, .address = UINT64_MAX - 4}); }},
};

const misdeed frames_out_of_turn[] = {
    {"messages beyond the credits",
     {"messages", "4"},
     [](bare::peer& p) {
         for (int i = 0; i < few_credits + 1; ++i) exactly(p, with_payload(frame::message, 8));
     }},
    {"offers beyond the credits",
     {"messages", "4"},
     [](bare::peer& p) {
         for (int i = 0; i < few_credits + 1; ++i) exactly(p, {.type = frame::offer, .size = large_bytes});
     }},
    {"a fragment that nobody asked for",
     {"frame fragment"},
     [](bare::peer& p) { exactly(p, with_payload(frame::fragment, 8)); }},
    {"an abandon of nothing", {"frame abandon"}, [](bare::peer& p) { exactly(p, {.type = frame::abandon}); }},
    {"an acceptance of what was not offered",
     {"frame accept"},
     [](bare::peer& p) { exactly(p, {.type = frame::accept, .size = 1}); }},
    {"slots that were never spent",
     {"9 slots"},
     [](bare::peer& p) { exactly(p, {.type = frame::credit, .slots = 9}); }},
    {"credits that were never spent",
     {"5 credits"},
     [](bare::peer& p) { exactly(p, {.type = frame::credit, .credits = 5}); }},
    {"an offer of a small message",
     {"100 bytes", "4097"},
     [](bare::peer& p) { exactly(p, {.type = frame::offer, .size = 100}); }},
    {"an offer of too large a message",
     {"9000000 bytes", "1048576"},
     [](bare::peer& p) { exactly(p, {.type = frame::offer, .size = 9'000'000}); }},
    {"a second `ready`", {"frame ready"}, [](bare::peer& p) { exactly(p, {.type = frame::ready}); }},
    {"a share without access",
     {"access bits 0", "8 bytes at 4096"},
     [](bare::peer& p) { exactly(p, {.type = frame::shared, .size = 8, .address = 4096}); }},
    {"an acceptance of another size",
     {"5001 bytes", "5000 were offered"},
     [](bare::peer& p) {
         static_cast<void>(p.receive(frame::offer));
         exactly(p, {.type = frame::accept, .size = large_bytes + 1});
     },
     sends_large},
    {"more than what was offered",
     {"4096 bytes", "904 are missing"},
     [](bare::peer& p) {
         p.send({.type = frame::offer, .size = large_bytes});
         static_cast<void>(p.receive(frame::accept));
         exactly(p, with_payload(frame::fragment, 4096));
         exactly(p, with_payload(frame::fragment, 4096));
     },
     receives_large},
};

task<void> breaks(connection& c, const misdeed& m) {
    co_await m.meanwhile(c);
    const error why = must_fail(co_await c.closed(), errc::protocol_error);
    for (const std::string& each : m.named) must_name(why, each);
    const auto sent = co_await c.send(std::uint32_t{1});
    VERIFY(!sent);
}

void catch_in_the_act(role bare, const misdeed& m) {
    INFO(to_string(bare) << ": " << m.name);
    meeting with{.ours_closes = false};
    with.hello.credits = few_credits;
    meet(
        bare, [&m](runtime&, connection& c) { return breaks(c, m); },
        [&m](bare::peer& p) {
            m.commit(p);
            p.wait_until_disconnected();
        },
        with);
}

} // namespace

TEST_CASE("Interoperation.a_frame_that_is_none_ends_the_connection_with_the_value") {
    for (const role bare : {role::client, role::server})
        for (const misdeed& m : frames_that_are_none) catch_in_the_act(bare, m);
}

TEST_CASE("Interoperation.a_frame_out_of_turn_ends_the_connection_with_the_value") {
    for (const role bare : {role::client, role::server})
        for (const misdeed& m : frames_out_of_turn) catch_in_the_act(bare, m);
}

TEST_CASE("Interoperation.a_frame_after_the_goodbye_ends_the_connection") {
    const misdeed m{"a message after the goodbye", {"after the goodbye"}, [](bare::peer& p) {
                        p.send({.type = frame::goodbye});
                        exactly(p, with_payload(frame::message, 8));
                    }};
    for (const role bare : {role::client, role::server}) catch_in_the_act(bare, m);
}

// ---- handshakes ----

namespace {

/// Listens until one peer has come and gone; all others were refused.
task<void> listens_for_one(runtime& rt, std::string on, std::promise<std::string>& where, std::uint64_t refused) {
    auto listener = must(co_await rt.listen(on));
    where.set_value(listener.address().to_string());
    connection c = must(co_await listener.accept());
    must(co_await c.closed());
    VERIFY_EQUAL(listener.rejected(), refused);
}

struct bad_request {
    const char* name;
    bare::bytes content;
    std::uint16_t reason; ///< of the refusal: 1 version, 3 not sluice's, 5 malformed
};

bare::bytes changed(void (*change)(bare::hello&)) {
    bare::hello h;
    change(h);
    return encode(h);
}

std::vector<bad_request> bad_requests() {
    return {
        {"nothing", {}, 3},
        {"another protocol", bare::message_of("GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n........").payload, 3},
        {"noise", bare::pattern(48, 77), 3},
        {"too little", bare::part(encode(bare::hello{}), 0, 9), 5},
        {"version 0", changed([](bare::hello& h) { h.version = 0; }), 1},
        {"version 2", changed([](bare::hello& h) { h.version = 2; }), 1},
        {"kind 0", changed([](bare::hello& h) { h.kind = 0; }), 5},
        {"an acceptance", changed([](bare::hello& h) { h.kind = 2; }), 5},
        {"no lanes", changed([](bare::hello& h) { h.lanes = 0; }), 5},
        {"17 lanes", changed([](bare::hello& h) { h.lanes = 17; }), 5},
        {"lane 1 of 1", changed([](bare::hello& h) { h.lane = 1; }), 5},
        {"a lane of a connection that is not there", changed([](bare::hello& h) { h.lanes = 2, h.lane = 1; }), 5},
        {"a capability that there is not", changed([](bare::hello& h) { h.capabilities = 128; }), 5},
        {"no slots", changed([](bare::hello& h) { h.slots = 0; }), 5},
        {"no credits", changed([](bare::hello& h) { h.credits = 0; }), 5},
        {"no operations", changed([](bare::hello& h) { h.operations = 0; }), 5},
        {"no message", changed([](bare::hello& h) { h.message_bytes = 0; }), 5},
        {"a reason", changed([](bare::hello& h) { h.reason = 2; }), 5},
    };
}

/// Connects with it and must be refused, with a greeting that says why.
void must_be_refused(const std::string& address, const bad_request& bad) {
    INFO(bad.name);
    try {
        static_cast<void>(bare::peer::connect(address, bad.content));
        FAIL_CHECK("it was accepted");
    } catch (const bare::rejected& told) {
        REQUIRE(told.private_data.size() >= bare::hello::length);
        const bare::hello refusal = bare::parse_hello(told.private_data);
        CHECK(refusal.magic == "SLCR");
        CHECK(refusal.version == 1);
        CHECK(refusal.kind == bare::hello::reject);
        CHECK(refusal.reason == bad.reason);
    }
}

} // namespace

TEST_CASE("Interoperation.a_bad_request_is_refused_with_the_reason_and_the_listener_goes_on") {
    const std::string on = device_address();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    {
        const std::vector<bad_request> all = bad_requests();
        std::promise<std::string> where;
        auto ours = our_end::running([&](runtime& rt) { return listens_for_one(rt, on, where, all.size()); });
        const std::string address = where.get_future().get();
        for (const bad_request& each : all) must_be_refused(address, each);
        auto good = bare::peer::connect(address, encode(bare::hello{}));
        const bare::hello welcome = bare::parse_hello(good->greeted_with());
        good->set_limits(welcome.slots, welcome.credits);
        good->send({.type = frame::ready});
        good->send({.type = frame::goodbye});
        static_cast<void>(good->receive(frame::goodbye_ack));
        good->disconnect();
        ours->join();
    }
    check_nothing_left();
}

namespace {

/// How a bare server answers our request, and what connect() then says.
struct bad_answer {
    const char* name;
    bool accepts; ///< else it rejects
    bare::bytes (*content)(const bare::hello& request);
    std::error_condition condition;
    std::vector<std::string> named;
};

template <auto Change>
bare::bytes acceptance(const bare::hello& request) {
    bare::hello h = answer(bare::hello{}, request);
    Change(h);
    return encode(h);
}

template <std::uint16_t Reason>
bare::bytes refusal(const bare::hello&) {
    bare::hello h;
    h.kind = bare::hello::reject;
    h.reason = Reason;
    return encode(h);
}

bare::bytes noise(const bare::hello&) {
    return bare::message_of("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").payload;
}
bare::bytes nothing(const bare::hello&) { return {}; }

std::error_condition of(errc code) { return make_error_code(code).default_error_condition(); }
std::error_condition of(std::errc code) { return make_error_condition(code); }

std::vector<bad_answer> bad_answers() {
    using h = bare::hello;
    return {
        {"another protocol", true, noise, of(errc::protocol_error), {"SLCR", "HTTP"}},
        {"version 2",
         true,
         acceptance<[](h& x) { x.version = 2; }>,
         of(errc::version_mismatch),
         {"version 2", "version 1"}},
        {"a request", true, acceptance<[](h& x) { x.kind = 1; }>, of(errc::protocol_error), {"no acceptance"}},
        {"another connection",
         true,
         acceptance<[](h& x) { x.connection[3] ^= 1; }>,
         of(errc::protocol_error),
         {"another connection"}},
        {"more credits", true, acceptance<[](h& x) { x.credits = 65; }>, of(errc::protocol_error), {"more"}},
        {"more lanes", true, acceptance<[](h& x) { x.lanes = 2; }>, of(errc::protocol_error), {"more"}},
        {"no slots", true, acceptance<[](h& x) { x.slots = 0; }>, of(errc::protocol_error), {"slots = 0"}},
        {"busy", false, refusal<2>, of(std::errc::resource_unavailable_try_again), {"no room"}},
        {"no resources", false, refusal<4>, of(errc::out_of_resources), {"no resources"}},
        {"another version", false, refusal<1>, of(errc::version_mismatch), {"version"}},
        {"an unknown reason", false, refusal<99>, of(errc::protocol_error), {"99"}},
        {"a refusal without a word", false, nothing, of(std::errc::connection_refused), {"refused"}},
        {"a refusal in another protocol", false, noise, of(errc::protocol_error), {"SLCR", "HTTP"}},
    };
}

task<void> must_not_connect(runtime& rt, std::string to, const bad_answer& bad) {
    auto made = co_await rt.connect(to);
    VERIFY(!made);
    const error& why = made.error();
    if (why.code().default_error_condition() != bad.condition && why.code() != bad.condition)
        throw conformance::failure("failed with '" + why.message() + "'; should be " + bad.condition.message(),
                                   std::source_location::current());
    for (const std::string& each : bad.named) must_name(why, each);
    must_name(why, to);
}

} // namespace

TEST_CASE("Interoperation.a_bad_answer_is_an_error_of_connect_that_names_it") {
    const std::string on = device_address();
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    for (const bad_answer& bad : bad_answers()) {
        INFO(bad.name);
        {
            bare::acceptor acceptor(on);
            auto ours = our_end::running([&](runtime& rt) { return must_not_connect(rt, acceptor.address(), bad); });
            const bare::request request = acceptor.next();
            const bare::bytes content = bad.content(bare::parse_hello(request.private_data));
            std::unique_ptr<bare::peer> peer;
            if (bad.accepts) peer = acceptor.accept(request, content);
            else acceptor.reject(request, content);
            ours->join();
        }
        check_nothing_left();
    }
}

} // namespace sluice::rdma::testing
