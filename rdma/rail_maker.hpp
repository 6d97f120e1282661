#pragma once

#include <sluice/error.hpp>
#include <sluice/executor.hpp>

#include "net/background.hpp"
#include "rdma/chosen_ports.hpp"
#include "rdma/rail.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace sluice::rdma {

class rdma_listener;

/// The rail of one device for a listener: made when the first request comes over it, and kept. It can be ended at any
/// time, unlike the task rail::of.
class rail_maker {
public:
    /// Begins at once; the listener hears of the end by rail_is_decided().
    rail_maker(rdma_listener& listener, executor& home, ibv_context* context);
    ~rail_maker();
    rail_maker(const rail_maker&) = delete;
    rail_maker& operator=(const rail_maker&) = delete;

    ibv_context* context() const noexcept { return context_; }
    bool decided() const noexcept { return decided_; }
    /// Once decided, for a port that is chosen: the rail, or why there is none.
    result<std::shared_ptr<rail>> outcome() const;
    /// Once decided: why a request that came by this id is none for this listener [listener's rdma_devices].
    result<void> check_port(const rdma_cm_id& id) const;
    /// Whether another try is worth it: it failed a second ago, or its device has gone or was not wanted, or it broke.
    bool stale() const noexcept;

private:
    net::background make();

    rdma_listener& listener_;
    executor& home_;
    ibv_context* context_;
    bool decided_ = false;
    std::chrono::steady_clock::time_point retry_at_; // where it failed
    // what the calls on helper threads make
    device* device_ = nullptr;
    std::shared_ptr<rail> rail_;
    std::vector<chosen_port> chosen_; // where the listener chooses
    std::optional<error> failure_;
    net::background work_;
};

} // namespace sluice::rdma
