#pragma once

#include "net/provider.hpp"

namespace sluice::rdma {

/// Connects to an `rdma://` address: resolves names, address and route, makes the queue pairs, shakes hands, lane by lane.
/// options.connect_timeout bounds all of it, but for calls of verbs that are under way then: opening a device that nobody
/// has used yet registers all memory with it.
///
/// Errors: ECONNREFUSED (nobody listens), EHOSTUNREACH (no RDMA device leads there, or nobody answers), timed_out,
/// protocol_error (the other side isn't sluice), version_mismatch, out_of_resources with a device's limit; each names
/// the address. Where devices are chosen [device_selector.hpp]: EHOSTUNREACH when none of them leads there, and what
/// device_selector::match reports.
/// Like rdma_listen, errc::unsupported in a child of fork() whose parent used RDMA before.
task<result<std::unique_ptr<detail::provider_connection>>> rdma_connect(address to, connection_options options,
                                                                        detail::provider_setup setup);
/// Listens. Errors: busy (address in use), EADDRNOTAVAIL (no RDMA device has this address, or one that is not chosen),
/// access_denied. On a wildcard address requests that come over other devices than the chosen ones are refused.
task<result<std::unique_ptr<detail::provider_listener>>> rdma_listen(address on, listen_options options,
                                                                     detail::provider_setup setup);
/// Success when this machine has a device with an active port and this process may use it, else why not. Looks at sysfs;
/// where devices are chosen also at their ports, and then only the chosen ones count. For a helper thread. Errors:
/// errc::unsupported, ENOENT, EACCES, EPERM, each with the remedy; what device_selector::match reports.
result<void> rdma_available(const std::string& devices = {});

} // namespace sluice::rdma
