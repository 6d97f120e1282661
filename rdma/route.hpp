#pragma once

#include <sluice/connection.hpp>
#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "net/endpoint.hpp"
#include "rdma/chosen_ports.hpp"
#include "rdma/cm_wait.hpp"
#include "rdma/connection_manager.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace sluice::rdma {

/// An id that has a device and a path to a peer, observed by `events`, which outlives it.
struct route {
    std::unique_ptr<cm_wait> events;
    std::unique_ptr<cm_id> id;
};

/// What a route must keep to.
struct route_limits {
    const connection_options& options;
    std::chrono::steady_clock::time_point until; ///< no later than this, though the caller has the say
};

/// The route by which the kernel's tables lead to a peer, or, with a source address, the one from there. Errors:
/// EHOSTUNREACH (no RDMA device leads there, nobody has this address), `condition::canceled`.
task<result<route>> find_route(executor& home, net::endpoint to, route_limits within,
                               const sockaddr_storage* source = nullptr);

/// The same by one of these ports only: where the kernel's route goes another way, from an address of a chosen port. A
/// port of a better rank is tried first, in its share of the time. Errors: EHOSTUNREACH when none reaches the peer,
/// which says where the kernel's route leads and what became of each try; `condition::canceled`.
task<result<route>> find_route_by(executor& home, net::endpoint to, route_limits within,
                                  const std::vector<chosen_port>& chosen, const std::string& selection);

/// The address that an id leaves from, for another one that is to leave by the same way; the port is its own.
sockaddr_storage same_source(const cm_id& id, const net::endpoint& to);

} // namespace sluice::rdma
