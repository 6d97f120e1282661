#pragma once

#include "net/provider.hpp"

#include <memory>

namespace sluice::net {

/// Listens over RDMA and TCP on the same port, for an `auto://` address. Where RDMA can't listen there, TCP does alone,
/// and the log says why, also when RDMA is lost later, as with its device; not so with `require_rdma`: then RDMA does
/// alone.
task<result<std::unique_ptr<detail::provider_listener>>> auto_listen(address on, listen_options options,
                                                                     detail::provider_setup setup, bool require_rdma);

} // namespace sluice::net
