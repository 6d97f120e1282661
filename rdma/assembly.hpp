#pragma once

#include <sluice/connection.hpp>
#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "net/background.hpp"
#include "net/provider.hpp"
#include "rdma/handshake.hpp"
#include "rdma/rail.hpp"
#include "rdma/terms.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sluice::rdma {

/// What a connection consists of while it is set up. Destroyed before it is handed over, it goes in the order that
/// verbs demand: queue pairs, drained, then slots, then ids.
struct assembly {
    std::shared_ptr<rail> on;
    std::uint32_t slots = 0; ///< added to the rail
    std::vector<rdma_lane_parts> lanes;

    assembly() = default;
    assembly(const assembly&) = delete;
    assembly& operator=(const assembly&) = delete;
    ~assembly();

    /// Takes its slots from the rail. Errors: those of rail::add_slots.
    result<void> take_slots();
    /// The same as destroying it, but what may take a while is done on helper threads.
    task<void> take_down();
};

/// Ends a queue pair that nobody uses: `draining out(*qp); while (!out.done()) co_await out.news.wait();`, after which
/// it may be destroyed. It takes no longer than the device needs [queue_pair::drained], whether or not a stop is
/// requested.
class draining final : public queue_pair_user {
public:
    explicit draining(queue_pair& qp) noexcept;
    ~draining();
    draining(const draining&) = delete;
    draining& operator=(const draining&) = delete;

    bool done() const noexcept { return qp_.drained(); }
    net::parking_spot news;

    void on_work_done(const work&, const completion&) noexcept override {}
    void on_frame(std::span<const std::byte>) noexcept override {}
    void on_room() noexcept override { news.nudge(); }
    void on_queue_pair_event(ibv_event_type) noexcept override { news.nudge(); }

private:
    queue_pair& qp_;
};

/// What this end says of itself: limits of `options`, slots that were taken, what the device can do.
greeting greeting_of(greeting::kind what, const connection_options& options, const assembly& from, std::uint64_t owner);
/// The smaller of both limits; the rest is `mine`.
greeting meet(greeting mine, const greeting& theirs) noexcept;

/// For rdma_connect and rdma_accept: what the device can do, at most what the peer offers; the bytes must live until
/// the call has returned.
rdma_conn_param parameters_of(const device& on, std::span<const std::byte> greeting,
                              std::uint8_t responder_resources_max, std::uint8_t initiator_depth_max) noexcept;

/// So long that a packet which is sent eight times is given up after about `peer_timeout`, in the connection manager's
/// measure: 4.096 µs times two to this power [rdma_set_option(3)]. At most a second, so that a lost packet is not sent
/// again too late.
std::uint8_t ack_timeout_of(std::chrono::nanoseconds peer_timeout) noexcept;
/// Sets it where librdmacm and the kernel know it.
void set_ack_timeout(cm_id& id, const connection_options& options) noexcept;

/// Makes the connection; `agreed` is what both ends keep to, `theirs` what the peer said. The assembly is empty then.
std::unique_ptr<detail::provider_connection> hand_over(executor& home, const connection_options& options,
                                                       const detail::provider_setup& setup, assembly& from,
                                                       const greeting& agreed, const greeting& theirs, bool connecting);

} // namespace sluice::rdma
