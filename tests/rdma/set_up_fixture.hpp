#pragma once

#include <sluice/address.hpp>
#include <sluice/connection.hpp>
#include <sluice/scope.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/when_all.hpp>

#include "net/provider.hpp"
#include "rdma/device.hpp"
#include "rdma/handshake.hpp"
#include "rdma/rdma_provider.hpp"
#include "tests/rdma/fake_verbs.hpp"
#include "tests/support/run.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

/// Both ends of connections that are set up, in one world and on one executor.
namespace sluice::testing {

using provider_connection = detail::provider_connection;
using connected = result<std::unique_ptr<provider_connection>>;

inline constexpr std::array every_cm_event{
    RDMA_CM_EVENT_ADDR_RESOLVED,   RDMA_CM_EVENT_ADDR_ERROR,       RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_ROUTE_ERROR,     RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_UNREACHABLE,     RDMA_CM_EVENT_REJECTED,         RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_DISCONNECTED,    RDMA_CM_EVENT_DEVICE_REMOVAL,   RDMA_CM_EVENT_MULTICAST_JOIN,
    RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_ADDR_CHANGE,      RDMA_CM_EVENT_TIMEWAIT_EXIT};

/// Those after which there will be no connection.
inline bool ends_set_up(rdma_cm_event_type type) {
    return type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR ||
           type == RDMA_CM_EVENT_CONNECT_ERROR || type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_REJECTED ||
           type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL;
}

inline std::error_code code_of(int value) { return {value, std::generic_category()}; }

inline bool mentions(const error& e, std::string_view text) { return e.message().find(text) != std::string::npos; }

struct two_ends {
    fake_verbs world; // goes last, and looks whether all is gone
    ibv_context* card;
    std::unique_ptr<executor> home = make_executor();
    std::unique_ptr<detail::provider_listener> listener;

    explicit two_ends(const fake_device_options& about = {}) : card(world.add_device(about)) {}
    ~two_ends() {
        listener.reset();
        home.reset();
        rdma::device::close_all();
    }
    two_ends(const two_ends&) = delete;
    two_ends& operator=(const two_ends&) = delete;

    template <class T>
    T run(task<T> work, stop_token token = {}) {
        return sync_wait(*home, std::move(work), token);
    }
    result<void> listen(const listen_options& options = {}, std::string_view on = "rdma://10.0.0.1:0") {
        auto made = run(rdma::rdma_listen(*address::parse(on), options, {.choice = "server", .owner = 22}));
        if (!made) return std::move(made).error();
        listener = std::move(*made);
        return {};
    }
    address there() const { return listener->address(); }
    task<connected> connect(const connection_options& options = {}) const { return connect(there(), options); }
    static task<connected> connect(address to, connection_options options) {
        to.scheme = scheme::rdma;
        return rdma::rdma_connect(std::move(to), options, {.choice = "client", .owner = 11});
    }
    /// Objects that are there only for a connection, or for one on its way.
    std::size_t qps() const { return world.alive().qps; }
    std::size_t ids() const { return world.alive().ids; }
};

/// A request as this library's connecting end makes it.
inline rdma::greeting sample_request(unsigned number, std::uint8_t lanes = 1, std::uint8_t lane = 0) {
    rdma::greeting g;
    g.lanes = lanes;
    g.lane = lane;
    g.slots = 16;
    g.credits = 64;
    g.operations_in_flight = 1024;
    g.message_bytes_max = 1 << 20;
    g.owner = 33;
    g.connection[0] = static_cast<std::byte>(number);
    g.connection[1] = static_cast<std::byte>(number >> 8);
    return g;
}

/// Lets everything run until `done`, helper threads included, for at most half a minute.
template <class Condition>
task<bool> until(Condition done) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done() && std::chrono::steady_clock::now() < patience) co_await yield();
    co_return done();
}

/// Runs a connect beside `meanwhile`, which gets the world.
template <class Meanwhile>
connected connect_while(two_ends& ends, address to, const connection_options& options, Meanwhile meanwhile) {
    const auto body = [](two_ends& e, address at, connection_options o, Meanwhile m) -> task<connected> {
        scope both;
        both.spawn(m(e));
        auto made = co_await two_ends::connect(std::move(at), o);
        static_cast<void>(co_await both.join());
        co_return made;
    };
    return ends.run(body(ends, std::move(to), options, std::move(meanwhile)));
}

/// Where nobody listens.
inline const address nowhere = *address::parse("rdma://10.0.0.9:7471");

} // namespace sluice::testing
