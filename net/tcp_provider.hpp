#pragma once

#include "net/provider.hpp"

namespace sluice::net {

/// TCP and unix sockets: everywhere.
const detail::provider& tcp_provider() noexcept;

} // namespace sluice::net
