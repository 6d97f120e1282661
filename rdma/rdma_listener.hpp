#pragma once

#include <sluice/error.hpp>
#include <sluice/event.hpp>
#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "net/background.hpp"
#include "net/provider.hpp"
#include "rdma/arrival.hpp"
#include "rdma/assembly.hpp"
#include "rdma/connection_manager.hpp"
#include "rdma/handshake.hpp"
#include "rdma/rail_maker.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::rdma {

/// Takes requests, answers them, and hands out connections. All of it goes on in the background, whether or not
/// accept() is awaited, up to `backlog` connections; further requests are refused as "busy".
class rdma_listener final : public detail::provider_listener, cm_observer {
public:
    /// `id` listens already.
    rdma_listener(executor& home, std::unique_ptr<cm_id> id, sluice::address address, listen_options options,
                  detail::provider_setup setup);
    ~rdma_listener() override;

    task<result<std::unique_ptr<detail::provider_connection>>> accept() override;
    void close() noexcept override;
    sluice::address address() const override { return address_; }
    std::uint64_t rejected() const noexcept override { return rejected_; }

    // ---- for arrivals and rail makers ----
    const connection_options& options() const noexcept { return options_.connection; }
    std::uint64_t owner() const noexcept { return setup_.owner; }
    const std::string& rdma_devices() const noexcept { return setup_.rdma_devices; }
    /// The rail of a device, being made or there.
    std::shared_ptr<rail_maker> rail_for(ibv_context* context);
    void rail_is_decided() noexcept;
    /// All lanes are established.
    void admit(assembly& parts, const greeting& agreed, const greeting& theirs);
    /// An arrival may be through; it is taken away later.
    void note_end() noexcept { swept_.nudge(); }
    /// Answers a request; its id is the caller's to destroy.
    static void reject(cm_id& id, greeting::refusal why, const error& cause);

private:
    void on_cm_event(cm_id& id, cm_event e) noexcept override;
    void on_request(cm_event e);
    void refuse(const cm_event& e, greeting::refusal why, const error& cause);
    net::background sweep();

    executor& home_;
    std::unique_ptr<cm_id> id_;
    sluice::address address_;
    listen_options options_;
    detail::provider_setup setup_;
    std::uint64_t rejected_ = 0;
    bool closed_ = false;
    std::optional<error> lost_; // the device that it listened on has gone
    event arrived_;
    std::vector<std::shared_ptr<rail_maker>> rails_;
    std::vector<std::unique_ptr<arrival>> arrivals_;
    std::deque<std::unique_ptr<detail::provider_connection>> ready_;
    net::parking_spot swept_;
    net::background sweeper_;
};

} // namespace sluice::rdma
