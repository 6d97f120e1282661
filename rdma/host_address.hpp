#pragma once

#include <sys/socket.h>

namespace sluice::rdma {

/// Whether the address, of either IP version and with whatever port, is one of this host's now: no socket can be bound
/// to another [bind(2): EADDRNOTAVAIL]. True as well where that can't be found out. The table of GIDs follows later,
/// when the kernel's workers get to it.
///
/// Thread rule: any thread; three system calls that don't block.
bool is_of_this_host(const sockaddr_storage& address) noexcept;

} // namespace sluice::rdma
