#include "rdma/route.hpp"

#include <sluice/contract.hpp>

#include "net/text.hpp"
#include "rdma/assembly.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <string>
#include <utility>

namespace sluice::rdma {

namespace {

using clock = std::chrono::steady_clock;

/// What the kernel waits for at most, at least a millisecond.
int milliseconds_until(clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 1, INT_MAX));
}

error no_device_leads_there(int cause) {
    if (cause != ENODEV && cause != ENETUNREACH && cause != EADDRNOTAVAIL && cause != EHOSTUNREACH)
        return error::from_errno(cause, "rdma_resolve_addr");
    return error::from_errno(EHOSTUNREACH, "address resolution: no RDMA device leads there (" +
                                               std::string(std::strerror(cause)) + "); `rdma link` lists the devices");
}

/// The address is one of this machine without a device of its own, such as 127.0.0.1, which the kernel resolves to any.
error no_route(int cause) {
    if (cause != ENODEV) return error::from_errno(cause, "rdma_resolve_route");
    return error::from_errno(EHOSTUNREACH, "no RDMA device has a route to this address (rdma_resolve_route: " +
                                               std::string(std::strerror(cause)) +
                                               "); use the address of a device's netdev, not that of the loopback");
}

// The kernel looks for a neighbour's address when it is asked, when one of its entries changes, and when the time given is
// over. A change that comes just as it begins to wait it misses, and would sit out all the time though the answer is
// there [drivers/infiniband/core/addr.c: queue_req(), netevent_callback()]. So it gets a little time, and again.
constexpr std::chrono::milliseconds first_round{10};
constexpr std::chrono::milliseconds longest_round{1000};

task<result<void>> resolve_address(const route& r, const net::endpoint& to, route_limits within,
                                   const sockaddr_storage* source) {
    for (auto round = first_round;; round = std::min(2 * round, longest_round)) {
        // The kernel takes copies of both.
        sockaddr_storage there = to.storage;
        sockaddr_storage here{};
        if (source != nullptr) here = *source;
        const auto end = std::min(within.until, clock::now() + round);
        const int failed =
            api().resolve_addr(r.id->get(), source == nullptr ? nullptr : reinterpret_cast<sockaddr*>(&here),
                               reinterpret_cast<sockaddr*>(&there), milliseconds_until(end));
        if (failed != 0) co_return no_device_leads_there(errno);
        auto resolved = co_await r.events->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        if (resolved) co_return result<void>();
        if (!r.events->found_unresolved() || clock::now() >= within.until) co_return std::move(resolved).error();
    }
}

task<result<void>> resolve(const route& r, const net::endpoint& to, route_limits within,
                           const sockaddr_storage* source) {
    rdma_cm_id* const id = r.id->get();
    auto resolved = co_await resolve_address(r, to, within, source);
    if (!resolved) co_return std::move(resolved).error();
    if (api().resolve_route(id, milliseconds_until(within.until)) != 0)
        co_return no_route(errno);
    auto routed = co_await r.events->expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (!routed) co_return std::move(routed).error();
    SLUICE_EXPECTS(id->verbs != nullptr, "rdma: an id with a path and without a device");
    co_return result<void>();
}

bool is_link_local(const net::endpoint& e) noexcept {
    if (e.family() == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(e.storage).sin6_addr);
    return (ntohl(reinterpret_cast<const sockaddr_in&>(e.storage).sin_addr.s_addr) >> 16) == 0xA9FE; // 169.254/16
}

/// Whether packets from there can get to the peer and back at all.
bool fits(const source_address& from, const net::endpoint& to) noexcept {
    if (from.address.is_ipv4() != (to.family() == AF_INET)) return false;
    return !from.address.is_link_local() || is_link_local(to);
}

sockaddr_storage storage_of(const source_address& from) {
    sockaddr_storage made{};
    if (from.address.is_ipv4()) {
        auto& four = reinterpret_cast<sockaddr_in&>(made);
        four.sin_family = AF_INET;
        std::memcpy(&four.sin_addr, from.address.bytes.data() + 12, sizeof four.sin_addr);
    } else {
        auto& six = reinterpret_cast<sockaddr_in6&>(made);
        six.sin6_family = AF_INET6;
        std::memcpy(&six.sin6_addr, from.address.bytes.data(), sizeof six.sin6_addr);
        if (from.address.is_link_local()) six.sin6_scope_id = if_nametoindex(from.netdev.c_str());
    }
    return made;
}

/// One way to try: a port and an address of it, or the kernel's route where that leads by a chosen port.
struct way {
    const chosen_port* port;
    const source_address* from; ///< null: the kernel's
};

std::vector<way> ways(const std::vector<chosen_port>& chosen, const chosen_port* natural, const net::endpoint& to) {
    std::vector<way> all;
    for (const chosen_port& port : chosen)
        if (&port != natural)
            for (const source_address& from : port.sources)
                if (fits(from, to)) all.push_back({&port, &from});
    if (natural == nullptr) return all;
    // Before its equals, behind what is better.
    const auto at = std::ranges::find_if(all, [&](const way& w) { return w.port->rank >= natural->rank; });
    all.insert(at, {natural, nullptr});
    return all;
}

task<void> drop(result<route>& unwanted) {
    if (unwanted && unwanted->id != nullptr) co_await cm_id::destroy(std::move(unwanted->id));
}

} // namespace

sockaddr_storage same_source(const cm_id& id, const net::endpoint& to) {
    sockaddr_storage from = id.get()->route.addr.src_storage;
    if (from.ss_family == AF_INET6) {
        auto& six = reinterpret_cast<sockaddr_in6&>(from);
        six.sin6_port = 0;
        if (six.sin6_scope_id == 0) six.sin6_scope_id = reinterpret_cast<const sockaddr_in6&>(to.storage).sin6_scope_id;
    } else {
        reinterpret_cast<sockaddr_in&>(from).sin_port = 0;
    }
    return from;
}

task<result<route>> find_route(executor& home, net::endpoint to, route_limits within, const sockaddr_storage* source) {
    auto manager = connection_manager::of(home);
    if (!manager) co_return std::move(manager).error();
    auto made = cm_id::create(**manager);
    if (!made) co_return std::move(made).error();
    route r{std::make_unique<cm_wait>(), std::move(*made)};
    r.id->observe(r.events.get());
    set_ack_timeout(*r.id, within.options);
    auto resolved = co_await resolve(r, to, within, source);
    if (resolved) co_return std::move(r);
    co_await cm_id::destroy(std::move(r.id));
    co_return std::move(resolved).error();
}

task<result<route>> find_route_by(executor& home, net::endpoint to, route_limits within,
                                  const std::vector<chosen_port>& chosen, const std::string& selection) {
    SLUICE_EXPECTS(!chosen.empty(), "rdma: a route by no port at all");
    // Each try has its share of the time that is left, and so has the rest of the set-up.
    const auto share = [&](std::size_t tries_left) {
        const auto now = clock::now();
        const auto left = std::max(within.until - now, clock::duration());
        return route_limits{within.options, now + left / static_cast<std::int64_t>(tries_left + 1)};
    };
    auto natural = co_await find_route(home, to, share(chosen.size() + 1));
    if (!natural && natural.error() == condition::canceled) co_return natural;
    const auto all = ways(chosen, natural ? find_port(chosen, *natural->id->get()) : nullptr, to);
    std::string tried;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].from == nullptr) co_return natural;
        const sockaddr_storage source = storage_of(*all[i].from);
        auto made = co_await find_route(home, to, share(all.size() - i), &source);
        if (made && all[i].port->is_of(*made->id->get())) {
            co_await drop(natural);
            co_return made;
        }
        if (!made && made.error() == condition::canceled) {
            co_await drop(natural);
            co_return made;
        }
        tried += "; " + all[i].port->name() + " from " + to_address(all[i].from->address) + ": " +
                 (made ? "it leads to " + port_and_address(*made->id->get()) : std::string(made.error().detail()));
        co_await drop(made);
    }
    if (all.empty()) tried = "; no chosen port has an address to reach it from";
    const std::string leads_to = natural ? port_and_address(*natural->id->get()) : "no RDMA device";
    co_await drop(natural);
    co_return error::from_errno(EHOSTUNREACH, "no chosen RDMA device leads there (rdma_devices " +
                                                  net::quoted(selection) + "): the route leads to " + leads_to + tried);
}

} // namespace sluice::rdma
