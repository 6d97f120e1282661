#pragma once

#include <sluice/error.hpp>

#include "rdma/queue_pair.hpp"

#include <string>

namespace sluice::rdma {

/// What a failed work request means to the operation that it was a part of: access_denied for what the peer's device
/// refused, peer_lost where it gave no answer, else errc::protocol_error or the local mistake; with the status by name
/// and the vendor's code [ibv_poll_cq(3)].
error error_of(const work& w, const completion& how, const std::string& peer);
/// Says no more than that the connection is gone: those fail with the connection's cause.
bool is_loss(const completion& how) noexcept;
/// "IBV_WC_REM_ACCESS_ERR"
const char* to_string(ibv_wc_status status) noexcept;

} // namespace sluice::rdma
