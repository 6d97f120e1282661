#include <sluice/blocking.hpp>
#include <sluice/contract.hpp>

#include "net/endpoint.hpp"
#include "net/resolve.hpp"
#include "net/text.hpp"
#include "rdma/chosen_ports.hpp"
#include "rdma/connection_manager.hpp"
#include "rdma/fork.hpp"
#include "rdma/rdma_listener.hpp"
#include "rdma/rdma_provider.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::rdma {

namespace {

bool is_wildcard(const net::endpoint& e) {
    if (e.family() == AF_INET)
        return reinterpret_cast<const sockaddr_in&>(e.storage).sin_addr.s_addr == htonl(INADDR_ANY);
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(e.storage).sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(&six);
}

bool is_loopback(const net::endpoint& e) {
    if (e.family() == AF_INET)
        return (ntohl(reinterpret_cast<const sockaddr_in&>(e.storage).sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(e.storage).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&six);
}

/// What the kernel says of an address that can't be had, and what helps.
error why_not(const char* call, int cause, const net::endpoint& e) {
    const std::string begin = std::string(call) + ": ";
    const std::string port = std::to_string(e.port());
    // Of an address without a device too, depending on the devices.
    if (is_loopback(e) && (cause == EADDRINUSE || cause == EADDRNOTAVAIL || cause == ENODEV))
        return error::from_errno(cause, begin + "no RDMA device has a loopback address (or another listener has port " + port +
                                            "); use the address of a device's netdev, as `rdma link` and `ip addr` list them");
    // A port that is taken on all addresses is reported this way too.
    const bool taken = cause == EADDRINUSE || (cause == EADDRNOTAVAIL && is_wildcard(e));
    if (taken)
        return error::from_errno(EADDRINUSE,
                                 begin + "another listener has port " + port + "; take another, or 0 for any");
    if (cause == EADDRNOTAVAIL || cause == ENODEV)
        return error::from_errno(EADDRNOTAVAIL,
                                 begin + "no RDMA device has this address, or a listener on all addresses has port " +
                                     port + "; `rdma link` and `ip addr` list what there is");
    if ((cause == EACCES || cause == EPERM) && e.port() != 0 && e.port() < 1024)
        return error::from_errno(cause, begin + "port " + port + " needs CAP_NET_BIND_SERVICE; take one from 1024 on");
    return error::from_errno(cause, call);
}

result<std::unique_ptr<cm_id>> listening_id(connection_manager& on, net::endpoint e, std::uint32_t backlog) {
    auto id = cm_id::create(on);
    if (!id) return std::move(id).error();
    if (api().bind_addr((*id)->get(), reinterpret_cast<sockaddr*>(&e.storage)) != 0)
        return why_not("rdma_bind_addr", errno, e);
    const int most = static_cast<int>(std::min<std::uint32_t>(backlog, INT_MAX));
    if (api().listen((*id)->get(), most) != 0) return why_not("rdma_listen", errno, e);
    return std::move(*id);
}

/// An address of a device that is not chosen is none to listen on. A wildcard's requests are looked at when they come.
result<void> check_chosen(const cm_id& id, const std::vector<chosen_port>& chosen, const std::string& selection) {
    if (id.get()->verbs == nullptr) return {};
    if (find_port(chosen, *id.get()) != nullptr) return {};
    return error::from_errno(EADDRNOTAVAIL, "the address is of " + port_and_address(*id.get()) +
                                                ", which is not chosen (rdma_devices " + net::quoted(selection) + ")");
}

} // namespace

task<result<std::unique_ptr<detail::provider_listener>>> rdma_listen(address on, listen_options options,
                                                                     detail::provider_setup setup) {
    const std::string name = "listen on " + on.to_string() + ": ";
    if (on.is_unix()) co_return error(errc::invalid_address, name + "a unix socket has no RDMA; use tcp://");
    if (options.reuse_port)
        co_return error(errc::unsupported, name +
                                               "listen_options.reuse_port: the connection manager gives a port to one "
                                               "listener only; use a port for each, or tcp://");
    if (auto ours = claim_rdma(); !ours)
        co_return error(ours.error().code(), name + std::string(ours.error().detail()));
    const scheme asked = on.scheme;
    auto endpoints = co_await net::resolve(std::move(on));
    if (!endpoints) co_return std::move(endpoints).error();
    std::vector<chosen_port> chosen;
    if (const std::string& selection = setup.rdma_devices; !selection.empty()) {
        auto found = co_await run_blocking([&selection] { return ports_to_listen_on(selection); });
        if (!found) co_return error(found.error().code(), name + std::string(found.error().detail()));
        chosen = std::move(*found);
    }
    executor& home = co_await this_executor();
    auto manager = connection_manager::of(home);
    if (!manager) co_return error(manager.error().code(), name + std::string(manager.error().detail()));
    SLUICE_EXPECTS(!endpoints->empty(), "rdma: an address without endpoints");
    // Of several endpoints the first's error counts: a port that is taken there is no better for an address that isn't there.
    std::optional<error> why_not;
    const auto note = [&why_not, &name, one = endpoints->size() == 1](const net::endpoint& e, const error& why) {
        std::string text = why_not ? std::string(why_not->detail()) + "; " : name;
        if (!one) text += e.to_address(scheme::rdma).to_string() + ": ";
        why_not = error(why_not ? why_not->code() : why.code(), text + std::string(why.detail()));
    };
    for (const net::endpoint& e : *endpoints) {
        auto id = listening_id(**manager, e, options.backlog);
        if (!id) {
            note(e, id.error());
            continue;
        }
        if (!setup.rdma_devices.empty())
            if (auto ok = check_chosen(**id, chosen, setup.rdma_devices); !ok) {
                note(e, ok.error());
                continue;
            }
        auto bound = address::parse((*id)->local_address());
        if (!bound) co_return error(bound.error().code(), name + "rdma_bind_addr gave no address");
        bound->scheme = asked;
        co_return std::make_unique<rdma_listener>(home, std::move(*id), std::move(*bound), std::move(options),
                                                  std::move(setup));
    }
    co_return *why_not;
}

} // namespace sluice::rdma
