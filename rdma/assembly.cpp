#include "rdma/assembly.hpp"

#include <sluice/blocking.hpp>
#include <sluice/contract.hpp>

#include "rdma/quirks.hpp"
#include "runtime/log.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::rdma {

namespace {

/// After a second the queue pair itself gives up on a device that keeps work back.
constexpr std::chrono::seconds drain_limit{2};
constexpr std::uint8_t retries_max = 7; // three bits [rdma_connect(3)]; of "receiver not ready" it means for ever

/// At least one: without reads nothing is confirmed over iWARP. Who can't have one is refused by rdma_accept.
std::uint8_t cut(int limit, std::uint8_t most) noexcept {
    return static_cast<std::uint8_t>(std::max(std::min(limit, static_cast<int>(most)), 1));
}

} // namespace

draining::draining(queue_pair& qp) noexcept : qp_(qp) {
    qp_.set_user(this);
    qp_.fail();
}

draining::~draining() { qp_.set_user(nullptr); }

assembly::~assembly() {
    for (rdma_lane_parts& lane : lanes) {
        if (lane.qp == nullptr) continue;
        lane.qp->fail();
        if (!lane.qp->drain_now(drain_limit))
            SLUICE_LOG(error, "rdma: the device did not give back the work of a queue pair in error");
        lane.qp.reset();
    }
    if (slots != 0) on->remove_slots(slots);
}

result<void> assembly::take_slots() {
    SLUICE_EXPECTS(on != nullptr && slots == 0, "rdma: slots are taken once, of the connection's rail");
    auto added = on->add_slots(slots_for_frames_least + slots_kept_back, slots_for_frames + slots_kept_back);
    if (!added) return std::move(added).error();
    slots = *added;
    return {};
}

task<void> assembly::take_down() {
    for (rdma_lane_parts& lane : lanes) {
        if (lane.qp == nullptr) continue;
        {
            draining out(*lane.qp);
            while (!out.done()) co_await out.news.wait();
        }
        cm_silence silence(lane.id->manager());
        co_await run_blocking([&lane, &silence] {
            const auto quiet = silence.begin();
            lane.qp.reset();
        });
    }
    if (slots != 0) on->remove_slots(std::exchange(slots, 0));
    for (rdma_lane_parts& lane : lanes)
        if (lane.id != nullptr) co_await cm_id::destroy(std::move(lane.id));
    lanes.clear();
}

greeting greeting_of(greeting::kind what, const connection_options& options, const assembly& from,
                     std::uint64_t owner) {
    SLUICE_EXPECTS(from.slots > slots_kept_back, "rdma: a greeting before the slots are there");
    greeting g;
    g.what = what;
    g.lanes = static_cast<std::uint8_t>(options.lanes);
    g.atomics = from.on->on().quirks().atomics; // shares are registered for them under the same condition
    g.slots = static_cast<std::uint16_t>(from.slots - slots_kept_back);
    g.credits = static_cast<std::uint16_t>(options.receive_credits);
    g.operations_in_flight = options.operations_in_flight;
    g.message_bytes_max = options.message_bytes_max;
    g.owner = owner;
    g.witness = from.on->witness();
    return g;
}

greeting meet(greeting mine, const greeting& theirs) noexcept {
    mine.lanes = std::min(mine.lanes, theirs.lanes);
    mine.atomics = mine.atomics && theirs.atomics;
    mine.credits = std::min(mine.credits, theirs.credits);
    mine.operations_in_flight = std::min(mine.operations_in_flight, theirs.operations_in_flight);
    mine.message_bytes_max = std::min(mine.message_bytes_max, theirs.message_bytes_max);
    return mine;
}

rdma_conn_param parameters_of(const device& on, std::span<const std::byte> greeting,
                              std::uint8_t responder_resources_max, std::uint8_t initiator_depth_max) noexcept {
    rdma_conn_param with{};
    with.private_data = greeting.data();
    with.private_data_len = static_cast<std::uint8_t>(greeting.size());
    with.responder_resources = cut(on.limits().max_qp_rd_atom, responder_resources_max);
    with.initiator_depth = cut(on.limits().max_qp_init_rd_atom, initiator_depth_max);
    with.flow_control = 1;
    with.retry_count = retries_max;
    with.rnr_retry_count = retries_max;
    return with;
}

std::uint8_t ack_timeout_of(std::chrono::nanoseconds peer_timeout) noexcept {
    constexpr std::uint8_t least = 8;
    constexpr std::uint8_t most = 18; // 1.07 s
    std::uint8_t power = least;
    while (power < most && std::chrono::nanoseconds(std::int64_t{8} * 4096 << (power + 1)) <= peer_timeout) ++power;
    return power;
}

void set_ack_timeout(cm_id& id, const connection_options& options) noexcept {
    std::uint8_t value = ack_timeout_of(options.peer_timeout);
    // From Linux 5.1 on; without it the path's own time counts [rdma_set_option(3)].
    static_cast<void>(api().set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, sizeof value));
}

} // namespace sluice::rdma
