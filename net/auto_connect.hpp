#pragma once

#include "net/provider.hpp"

#include <memory>

namespace sluice::net {

/// Connects over RDMA, and where that comes to nothing over TCP, for an `auto://` address. RDMA has half of
/// connect_timeout, 2 s at most, TCP what is left of it then. Errors: TCP's; `condition::canceled`.
task<result<std::unique_ptr<detail::provider_connection>>> auto_connect(address to, connection_options options,
                                                                        detail::provider_setup setup);

} // namespace sluice::net
