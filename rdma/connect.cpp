#include <sluice/blocking.hpp>
#include <sluice/contract.hpp>
#include <sluice/sleep.hpp>
#include <sluice/timeout.hpp>

#include "net/endpoint.hpp"
#include "net/random.hpp"
#include "net/resolve.hpp"
#include "rdma/assembly.hpp"
#include "rdma/chosen_ports.hpp"
#include "rdma/cm_wait.hpp"
#include "rdma/connect_thread.hpp"
#include "rdma/fork.hpp"
#include "rdma/path_mtu.hpp"
#include "rdma/quirks.hpp"
#include "rdma/rdma_provider.hpp"
#include "rdma/route.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

namespace sluice::rdma {

namespace {

using made_connection = result<std::unique_ptr<detail::provider_connection>>;

/// One attempt at one endpoint. Its waits outlive the ids of `parts`.
struct attempt {
    executor& home;
    net::endpoint to;
    const connection_options& options;
    const detail::provider_setup& setup;
    std::chrono::steady_clock::time_point until;
    std::string& stage; ///< what it waits for, to be said when the time is over
    std::vector<std::unique_ptr<cm_wait>> waits{};
    assembly parts{};
    greeting hello{};
    greeting welcome{};
};

error at(const char* step, const error& e) { return {e.code(), std::string(step) + ": " + std::string(e.detail())}; }

error failed_call(const char* name) { return error::from_errno(errno, name); }

/// Makes the id of the next lane, with a device and a path to the peer: by a chosen port, and all lanes by the same.
task<result<void>> reach(attempt& a) {
    const route_limits within{a.options, a.until};
    result<route> found = errc::closed;
    a.stage = "the resolution of its address";
    if (!a.parts.lanes.empty()) {
        const sockaddr_storage source = same_source(*a.parts.lanes.front().id, a.to);
        found = co_await find_route(a.home, a.to, within, &source);
    } else if (a.setup.rdma_devices.empty()) {
        found = co_await find_route(a.home, a.to, within);
    } else {
        const std::string& selection = a.setup.rdma_devices;
        auto chosen = co_await run_blocking([&selection] { return ports_to_connect_by(selection); });
        if (!chosen) co_return std::move(chosen).error();
        found = co_await find_route_by(a.home, a.to, within, *chosen, selection);
    }
    if (!found) co_return std::move(found).error();
    a.waits.push_back(std::move(found->events));
    a.parts.lanes.emplace_back(std::move(found->id), nullptr);
    co_return result<void>();
}

/// The device and the rail that the first lane's path leads to, and room in its receive queue.
task<result<void>> take_rail(attempt& a) {
    ibv_context* context = a.parts.lanes.front().id->get()->verbs;
    SLUICE_EXPECTS(context != nullptr, "rdma: an id with a path and without a device");
    a.stage = std::string("the RDMA device ") + ibv_get_device_name(context->device) + " to open";
    if (device* const known = device::known(context)) a.parts.on = rail::existing(a.home, *known);
    if (a.parts.on == nullptr || !a.parts.on->on().is_alive()) {
        auto on = co_await device::open(context);
        if (!on) co_return std::move(on).error();
        auto found = co_await rail::of(**on);
        if (!found) co_return std::move(found).error();
        a.parts.on = std::move(*found);
    }
    co_return a.parts.take_slots();
}

task<result<void>> make_queue_pair(attempt& a) {
    rdma_lane_parts& lane = a.parts.lanes.back();
    if (lane.id->get()->verbs != a.parts.on->on().context())
        co_return error::from_errno(EHOSTUNREACH, "lane " + std::to_string(a.parts.lanes.size() - 1) +
                                                      ": its path leads through another device than the first lane's");
    auto made = co_await run_blocking([&a, &lane] { return queue_pair::create(a.parts.on, lane.id->get()); });
    if (!made) co_return std::move(made).error();
    lane.qp = std::move(*made);
    co_return result<void>();
}

/// What the peer grants must lie within what was asked for, and be about this lane.
result<void> check_welcome(const greeting& hello, const greeting& welcome) {
    const auto wrong = [](const std::string& what) { return error(errc::protocol_error, "handshake: " + what); };
    if (welcome.what != greeting::kind::accept) return wrong("the peer accepted with a greeting that is no acceptance");
    if (welcome.connection != hello.connection || welcome.lane != hello.lane)
        return wrong("the peer accepted another connection, or another lane, than was asked for");
    if (hello.witness && !welcome.witness) return wrong("the peer accepted without a witness, which iWARP needs");
    if (welcome.lanes > hello.lanes || welcome.credits > hello.credits ||
        welcome.operations_in_flight > hello.operations_in_flight ||
        welcome.message_bytes_max > hello.message_bytes_max)
        return wrong("the peer grants more than was asked for");
    return {};
}

task<result<void>> ask(attempt& a, rdma_cm_id* id, const greeting& hello) {
    const auto bytes = hello.encode();
    rdma_conn_param with = parameters_of(a.parts.on->on(), bytes, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
    int failed = 0;
    if (a.parts.on->on().quirks().blocks_in_connect) failed = co_await connect_on_thread(a.home, id, with);
    else if (api().connect(id, &with) != 0) failed = errno;
    if (failed == 0) co_return result<void>();
    if (failed == ECANCELED) co_return errc::canceled;
    co_return error::from_errno(failed, failed == ECONNREFUSED ? "rdma_connect: nobody listens there" : "rdma_connect");
}

/// Asks the peer for the lane and waits until it is established.
task<result<greeting>> greet(attempt& a, greeting hello) {
    rdma_lane_parts& lane = a.parts.lanes.back();
    hello.path_mtu = port_mtu(*lane.id->get());
    a.stage = "its answer to the connection request from " + lane.id->local_address() + ", RDMA device " +
              a.parts.on->on().name() + ", port " + std::to_string(lane.id->get()->port_num) +
              (a.setup.rdma_devices.empty() ? "" : ", of rdma_devices = \"" + a.setup.rdma_devices + "\"");
    auto asked = co_await ask(a, lane.id->get(), hello);
    if (!asked) co_return std::move(asked).error();
    auto established = co_await a.waits.back()->expect(RDMA_CM_EVENT_ESTABLISHED);
    if (!established) co_return std::move(established).error();
    auto welcome = greeting::decode(established->private_data);
    if (!welcome) co_return std::move(welcome).error();
    if (auto ok = check_welcome(hello, *welcome); !ok) co_return std::move(ok).error();
    if (lower_mtu(*lane.id->get(), smaller_mtu(hello.path_mtu, welcome->path_mtu)) != 0)
        co_return failed_call("ibv_modify_qp to the smaller MTU of both ends");
    if (auto ok = lane.qp->tune(); !ok) co_return std::move(ok).error();
    co_return std::move(*welcome);
}

std::array<std::byte, 16> random_connection_number() {
    return std::bit_cast<std::array<std::byte, 16>>(std::array{net::random_number(), net::random_number()});
}

task<result<void>> first_lane(attempt& a) {
    auto reached = co_await reach(a);
    if (!reached) co_return std::move(reached).error();
    auto railed = co_await take_rail(a);
    if (!railed) co_return std::move(railed).error();
    auto paired = co_await make_queue_pair(a);
    if (!paired) co_return std::move(paired).error();
    a.hello = greeting_of(greeting::kind::request, a.options, a.parts, a.setup.owner);
    a.hello.connection = random_connection_number();
    auto welcome = co_await greet(a, a.hello);
    if (!welcome) co_return std::move(welcome).error();
    a.welcome = *welcome;
    co_return result<void>();
}

task<result<void>> further_lane(attempt& a, std::uint8_t number) {
    auto reached = co_await reach(a);
    if (!reached) co_return std::move(reached).error();
    auto paired = co_await make_queue_pair(a);
    if (!paired) co_return std::move(paired).error();
    greeting hello = meet(a.hello, a.welcome);
    hello.lane = number;
    auto welcome = co_await greet(a, hello);
    if (!welcome) co_return at(("lane " + std::to_string(number)).c_str(), welcome.error());
    co_return result<void>();
}

/// All lanes, one after another: the peer must know the connection before it meets its further lanes.
task<result<void>> all_lanes(attempt& a) {
    auto first = co_await first_lane(a);
    if (!first) co_return std::move(first).error();
    for (std::uint8_t i = 1; i < a.welcome.lanes; ++i) {
        auto further = co_await further_lane(a, i);
        if (!further) co_return std::move(further).error();
    }
    for (const auto& each : a.waits)
        if (auto ok = each->check(); !ok) co_return std::move(ok).error();
    co_return result<void>();
}

// Whoever was ended hard and begins anew meets peers that know its queue pairs' numbers: a few times in a row at most.
constexpr int stale_tries = 6;
constexpr std::chrono::milliseconds stale_pause{10};

task<made_connection> connect_to(net::endpoint to, const connection_options& options,
                                 const detail::provider_setup& setup, std::chrono::steady_clock::time_point until,
                                 std::string& stage) {
    executor& home = co_await this_executor();
    for (int left = stale_tries - 1;; --left) {
        attempt a{.home = home, .to = to, .options = options, .setup = setup, .until = until, .stage = stage};
        auto made = co_await all_lanes(a);
        if (made) {
            const greeting agreed = meet(a.hello, a.welcome);
            co_return hand_over(home, options, setup, a.parts, agreed, a.welcome, true);
        }
        const bool again = left > 0 && !a.waits.empty() && a.waits.back()->found_stale();
        co_await a.parts.take_down();
        if (!again) co_return std::move(made).error();
        auto paused = co_await sleep_for(stale_pause);
        if (!paused) co_return std::move(paused).error();
    }
}

/// Whether another endpoint of the same name may do better.
bool worth_another(const error& e) {
    return e == condition::timed_out || e == std::errc::host_unreachable || e == std::errc::connection_refused;
}

task<made_connection> establish(address to, connection_options options, detail::provider_setup setup,
                                std::string& stage) {
    const auto until = detail::deadline_after(options.connect_timeout);
    const bool named = !to.host.empty();
    auto endpoints = co_await net::resolve(to);
    if (!endpoints) co_return std::move(endpoints).error();
    SLUICE_EXPECTS(named && !endpoints->empty(), "rdma: an address without endpoints");
    error last(errc::invalid_address);
    for (std::size_t left = endpoints->size(); left > 0; --left) {
        const net::endpoint& e = (*endpoints)[endpoints->size() - left];
        const auto now = std::chrono::steady_clock::now();
        // What is left of the time is shared by the endpoints that are left.
        const auto rest = std::max(until - now, std::chrono::steady_clock::duration());
        const auto share = left == 1 ? until : now + rest / static_cast<std::int64_t>(left);
        auto made = co_await timeout_at(share, connect_to(e, options, setup, share, stage));
        if (made) co_return made;
        const bool timed_out = left > 1 && made.error() == errc::deadline_exceeded;
        const std::string numeric = e.to_address(scheme::rdma).to_string();
        last = timed_out ? error(errc::deadline_exceeded, numeric + ": nobody answered in its share of the time")
                         : error(made.error().code(), (endpoints->size() > 1 ? numeric + ": " : std::string()) +
                                                          std::string(made.error().detail()));
        if (!worth_another(last)) break;
    }
    co_return last;
}

} // namespace

task<made_connection> rdma_connect(address to, connection_options options, detail::provider_setup setup) {
    const std::string name = to.to_string();
    if (to.is_unix())
        co_return error(errc::invalid_address, "connect to " + name + ": a unix socket has no RDMA; use tcp://");
    if (auto ours = claim_rdma(); !ours)
        co_return error(ours.error().code(), "connect to " + name + ": " + std::string(ours.error().detail()));
    const auto limit = options.connect_timeout;
    std::string stage;
    auto made = co_await timeout(limit, establish(std::move(to), std::move(options), std::move(setup), stage));
    if (made || made.error() == errc::canceled) co_return made;
    if (made.error() == errc::deadline_exceeded) {
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
        co_return error(errc::deadline_exceeded, "connect to " + name + ": not done within " + std::to_string(waited) +
                                                     " ms (connection_options.connect_timeout)" +
                                                     (stage.empty() ? "" : "; waited for " + stage));
    }
    const std::string detail(made.error().detail());
    co_return error(made.error().code(), "connect to " + name + (detail.empty() ? "" : ": ") + detail);
}

} // namespace sluice::rdma
