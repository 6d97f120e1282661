#include "tests/rdma/meeting.hpp"

#include "tests/conformance/verify.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/timeout.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace sluice::rdma::testing {

using conformance::must;

std::string device_address() {
    const char* given = std::getenv("SLUICE_TEST_RDMA_IPV4");
    if (given == nullptr || *given == '\0')
        SKIP("the environment variable SLUICE_TEST_RDMA_IPV4 gives no address of an RDMA device");
    std::string why_not;
    try {
        static_cast<void>(bare::device_of(given));
    } catch (const bare::failure& e) {
        why_not = e.what();
    }
    if (!why_not.empty()) SKIP("SLUICE_TEST_RDMA_IPV4: " << why_not);
    return given;
}

void check_nothing_left() {
    const live_objects left = count_live();
    INFO("left: " << left.to_string());
    CHECK(left == live_objects{});
}

// ---- our end ----

our_end::our_end()
    : runtime_(must(runtime::create({.executors = 1, .pool_bytes = std::size_t{4} << 20, .pin = false}))) {}

our_end::~our_end() {
    if (done_.valid()) done_.wait();
}

void our_end::start(std::function<task<void>(our_end&)> body) {
    done_ = std::async(std::launch::async, [this, body = std::move(body)] {
        try {
            runtime_.sync_wait(body(*this));
        } catch (const std::exception& e) {
            std::fprintf(stderr, "an end failed: %s\n", e.what());
            try {
                where_.set_exception(std::current_exception());
            } catch (const std::future_error&) { // it listened already
            }
            throw;
        }
    });
}

namespace {

task<void> take_one(runtime& rt, std::string on, our_part body, connection_options options, std::string host,
                    std::promise<std::string>& where) {
    if (!host.empty()) enter_host_of(host);
    auto listener = must(co_await rt.listen(on, {.connection = options}));
    where.set_value(listener.address().to_string());
    connection c = must(co_await timeout(std::chrono::seconds(30), listener.accept()));
    listener.close();
    co_await body(rt, c);
}

task<void> make_one(runtime& rt, std::string to, our_part body, connection_options options, std::string host) {
    if (!host.empty()) enter_host_of(host);
    connection c = must(co_await rt.connect(to, options));
    co_await body(rt, c);
}

} // namespace

std::unique_ptr<our_end> our_end::listening(std::string address, our_part body, const connection_options& options,
                                            std::string on_host_of) {
    std::unique_ptr<our_end> made(new our_end);
    made->start([address = std::move(address), body = std::move(body), options,
                 host = std::move(on_host_of)](our_end& self) {
        return take_one(self.runtime_, address, body, options, host, self.where_);
    });
    return made;
}

std::unique_ptr<our_end> our_end::connecting(std::string address, our_part body, const connection_options& options,
                                             std::string on_host_of) {
    std::unique_ptr<our_end> made(new our_end);
    made->start([address = std::move(address), body = std::move(body), options,
                 host = std::move(on_host_of)](our_end& self) {
        return make_one(self.runtime_, address, body, options, host);
    });
    return made;
}

std::unique_ptr<our_end> our_end::running(std::function<task<void>(runtime&)> body) {
    std::unique_ptr<our_end> made(new our_end);
    made->start([body = std::move(body)](our_end& self) { return body(self.runtime_); });
    return made;
}

// ---- both ----

constexpr std::uint32_t the_word = 4711;

task<void> says_a_word(connection& c) {
    must(co_await c.send(the_word));
    must(co_await c.close());
}

task<void> hears_a_word(connection& c) {
    VERIFY_EQUAL(must(co_await c.receive<std::uint32_t>()), the_word);
    must(co_await c.closed());
}

const char* to_string(role r) { return r == role::client ? "bare client" : "bare server"; }

bare::hello answer(bare::hello mine, const bare::hello& request) {
    mine.kind = bare::hello::accept;
    mine.lanes = std::min(mine.lanes, request.lanes);
    mine.lane = request.lane;
    mine.capabilities &= request.capabilities;
    mine.credits = std::min(mine.credits, request.credits);
    mine.operations = std::min(mine.operations, request.operations);
    mine.message_bytes = std::min(mine.message_bytes, request.message_bytes);
    mine.connection = request.connection;
    return mine;
}

namespace {

task<void> play(runtime& rt, connection& c, const our_part& body, bool closes) {
    co_await body(rt, c);
    if (closes) must(co_await c.close());
}

void end_politely(bare::peer& theirs) {
    const bare::frame goodbye = theirs.receive(bare::frame::goodbye);
    CHECK(goodbye.payload.empty());
    theirs.send({.type = bare::frame::goodbye_ack});
    theirs.wait_until_disconnected();
}

using bare_part = std::function<void(bare::peer&)>;

/// What the bare end does. When it fails, so does ours, which may tell more.
void act(std::unique_ptr<bare::peer> peer, our_end& ours, const bare_part& theirs, bool polite) {
    try {
        theirs(*peer);
        if (polite) end_politely(*peer);
    } catch (...) {
        peer.reset();
        try {
            ours.join();
        } catch (const std::exception& e) {
            UNSCOPED_INFO("our end: " << e.what());
        }
        throw;
    }
}

void meet_as_client(const our_part& ours, const bare_part& theirs, const meeting& with) {
    auto end = our_end::listening(device_address(), ours, with.ours);
    auto peer = bare::peer::connect(end->address(), encode(with.hello), with.hello.slots);
    const bare::hello welcome = bare::parse_hello(peer->greeted_with());
    peer->set_limits(welcome.slots, welcome.credits);
    peer->send({.type = bare::frame::ready});
    act(std::move(peer), *end, theirs, with.ours_closes);
    end->join();
}

void meet_as_server(const our_part& ours, const bare_part& theirs, const meeting& with) {
    bare::acceptor acceptor(device_address());
    auto end = our_end::connecting(acceptor.address(), ours, with.ours);
    const bare::request request = acceptor.next();
    const bare::hello asked = bare::parse_hello(request.private_data);
    const bare::hello given = answer(with.hello, asked);
    auto peer = acceptor.accept(request, encode(given), given.slots);
    peer->set_limits(asked.slots, given.credits);
    static_cast<void>(peer->receive(bare::frame::ready));
    act(std::move(peer), *end, theirs, with.ours_closes);
    end->join();
}

} // namespace

void meet(role bare, const our_part& ours, const bare_part& theirs, const meeting& with) {
    static_cast<void>(device_address());
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    const our_part whole = [&ours, closes = with.ours_closes](runtime& rt, connection& c) {
        return play(rt, c, ours, closes);
    };
    (bare == role::client ? meet_as_client : meet_as_server)(whole, theirs, with);
    check_nothing_left();
}

} // namespace sluice::rdma::testing
