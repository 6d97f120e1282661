#pragma once

#include <sluice/address.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "net/endpoint.hpp"

#include <vector>

namespace sluice::net {

/// Where an address leads, at least one endpoint, the best first [getaddrinfo(3)]. Numbers and unix sockets are done at
/// once; a name is looked up on a helper thread. A look-up can't be interrupted: the resolver's own time-outs bound it
/// [resolv.conf(5)].
///
/// Errors: `condition::not_found` (no such name), `condition::busy` (the name service does not answer now),
/// errc::invalid_address (a scope that is no interface); each names the host.
task<result<std::vector<endpoint>>> resolve(address where);

} // namespace sluice::net
