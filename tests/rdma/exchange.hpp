#pragma once

#include <functional>
#include <string>

namespace sluice::rdma::testing {

/// A connection between two ends of ours, each on the host of its device: large writes and reads, small and large
/// messages, in both directions at once and with all bytes looked at, a round after the other until `enough` says so, and
/// one at least. Nothing of it may be left in the end.
void exchange_between(const std::string& server, const std::string& client, const std::function<bool()>& enough);

} // namespace sluice::rdma::testing
