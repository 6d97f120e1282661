#pragma once

#include <sluice/error.hpp>
#include <sluice/event.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "rdma/connection_manager.hpp"

#include <deque>
#include <optional>

namespace sluice::rdma {

/// Why a connection that is being set up comes to nothing, if this event says so: ADDR_ERROR, ROUTE_ERROR and
/// UNREACHABLE as EHOSTUNREACH; REJECTED as what the peer's greeting says, or ECONNREFUSED; CONNECT_ERROR,
/// DISCONNECTED, DEVICE_REMOVAL. Any other event with a status that is not 0 is an error as well.
std::optional<error> failure_of(const cm_event& e);
/// A rejection because the peer still knows a queue pair of this number by an earlier connection, as when this side was
/// ended hard and began anew. It forgets it with this; another queue pair may do at once.
bool is_stale(const cm_event& e) noexcept;

/// The events of one id, for the task that sets up its connection.
///
/// Lifetime: outlives the id, or the id observes another one before. Thread rule: executor-bound.
class cm_wait final : public cm_observer {
public:
    /// The next event, the oldest first. Errors: `condition::canceled`.
    task<result<cm_event>> next();
    /// The next one of this type; what says nothing about success is passed over. Errors: failure_of() what comes
    /// instead, `condition::canceled`.
    task<result<cm_event>> expect(rdma_cm_event_type wanted);
    /// Errors: failure_of() what has come and was not asked for.
    result<void> check() const;
    ///@{
    /// What expect() found last was is_stale(); an address that was not resolved in the time given.
    bool found_stale() const noexcept { return found_stale_; }
    bool found_unresolved() const noexcept { return found_unresolved_; }
    ///@}

    void on_cm_event(cm_id& id, cm_event e) noexcept override;

private:
    std::deque<cm_event> events_;
    event arrived_;
    bool found_stale_ = false;
    bool found_unresolved_ = false;
};

} // namespace sluice::rdma
