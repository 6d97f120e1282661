#pragma once

#include <sluice/error.hpp>

#include <cstddef>
#include <string>

namespace sluice::rdma {

/// Why a verbs call failed: `what` names the call, what was asked for and where; the errno value `reason` says how, and
/// brings what is known to help. ENOMEM, EAGAIN and EPERM become out_of_resources; of memory that was to be locked
/// (`bytes`, 0 if that is not known) the first and the last name the memlock limit, which bounds queues as much as
/// memory [ibv_reg_mr(3), mlock(2)].
error verbs_error(int reason, const std::string& what, std::size_t bytes = 0);

/// Why this process can't lock `bytes` more, with the need, the memlock limit and the remedy; empty when it can
/// [getrlimit(2), capabilities(7)].
std::string memlock_shortage(std::size_t bytes);

} // namespace sluice::rdma
