#include "rdma/queue_pair.hpp"
#include "rdma/limits.hpp"
#include "rdma/queue_pair_state.hpp"
#include "rdma/quirks.hpp"
#include "rdma/rail_impl.hpp"

#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace sluice::rdma {

namespace {

/// 0.64 ms [ibv_modify_qp(3), IB 9.7.5.2.8]. The connection manager leaves 0, which is 655 ms: with that a peer that
/// once finds no receive posted waits for so long.
constexpr std::uint8_t min_rnr_timer = 12;

constexpr std::uint32_t segments_of_work = 2; // header and payload

/// Less each time, until the device takes it; 0 always will do.
std::uint32_t less_inline(std::uint32_t bytes) noexcept { return bytes <= 16 ? 0 : bytes / 2; }

error cannot_create(int reason, const device& on, const ibv_qp_cap& asked) {
    const ibv_device_attr& limits = on.limits();
    return verbs_error(reason, "rdma_create_qp on " + on.name() + " with " + std::to_string(asked.max_send_wr) +
                                   " work requests (allowed " + std::to_string(limits.max_qp_wr) + "), " +
                                   std::to_string(asked.max_send_sge) + " segments (allowed " +
                                   std::to_string(limits.max_sge) + "), " + std::to_string(asked.max_inline_data) +
                                   " bytes inline, at most " + std::to_string(limits.max_qp) + " queue pairs");
}

/// Makes the verbs object, with the most inline bytes that the device takes, and returns how many.
result<std::uint32_t> create_verbs_object(rdma_cm_id* id, device& on, const ibv_qp_init_attr& wanted) {
    ibv_qp_init_attr asked = wanted;
    for (std::uint32_t inline_bytes = wanted.cap.max_inline_data;; inline_bytes = less_inline(inline_bytes)) {
        asked = wanted;
        asked.cap.max_inline_data = inline_bytes;
        const ibv_qp_cap cap = asked.cap;
        errno = 0;
        if (api().create_qp(id, on.pd(), &asked) == 0) return asked.cap.max_inline_data;
        // Too much inline is either of these; what else is wrong stays wrong without.
        if (const int reason = errno; inline_bytes == 0 || (reason != EINVAL && reason != ENOMEM))
            return cannot_create(reason, on, cap);
    }
}

} // namespace

struct queue_pair::impl {
    std::shared_ptr<rail> home;
    rail_core& core;
    std::unique_ptr<queue_pair_state> state;
};

queue_pair::queue_pair(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}

result<std::unique_ptr<queue_pair>> queue_pair::create(std::shared_ptr<rail> home, rdma_cm_id* id,
                                                       const queue_pair_options& options) {
    SLUICE_EXPECTS(home != nullptr && id != nullptr, "queue pair: without a rail or an id");
    SLUICE_EXPECTS(options.send_depth >= 1, "queue pair: a send queue without room");
    device& on = home->on();
    SLUICE_EXPECTS(id->verbs == on.context(), "queue pair: an id of another device than the rail's");
    rail_core& core = *home->impl_->core;
    const bool confirms = on.quirks().confirms_by_reading;
    const auto allowed = static_cast<std::uint32_t>(std::max(on.limits().max_qp_wr, 1));
    const std::uint32_t depth =
        std::min(options.send_depth, std::max(allowed / send_queue::requests_max(1, confirms), 1U));
    const std::uint32_t requests = send_queue::requests_max(depth, confirms);
    auto headers = private_memory::create(on, send_queue::header_memory_bytes(depth));
    if (!headers) return headers.error();
    auto reserved = core.reserve(requests);
    if (!reserved) return reserved.error();

    ibv_qp_init_attr wanted{};
    wanted.send_cq = (*reserved)->get();
    wanted.recv_cq = core.receive_cq();
    wanted.srq = core.receives().get();
    wanted.cap = {.max_send_wr = requests,
                  .max_recv_wr = 0,
                  .max_send_sge = segments_of_work,
                  .max_recv_sge = 0,
                  .max_inline_data = options.inline_bytes};
    wanted.qp_type = IBV_QPT_RC;
    wanted.sq_sig_all = 0;
    auto granted = create_verbs_object(id, on, wanted);
    if (!granted) {
        core.release(**reserved, requests);
        return granted.error();
    }
    const std::uint32_t generation = core.new_generation();
    auto state = std::make_unique<queue_pair_state>(send_queue(depth, generation, *granted, std::move(*headers)));
    if (confirms) state->sends.confirm_by_reading(core.read_from_witness());
    state->id = id;
    state->qp = id->qp;
    state->number = id->qp->qp_num;
    state->port = id->port_num;
    // Of iWARP it is no address, and stays the same whatever becomes of those.
    if (!on.quirks().iwarp)
        std::memcpy(state->own_gid.bytes.data(), id->route.addr.addr.ibaddr.sgid.raw, state->own_gid.bytes.size());
    state->send_cq = *reserved;
    state->reserved = requests;
    core.take_in(*state);
    return std::unique_ptr<queue_pair>(
        new queue_pair(std::unique_ptr<impl>(new impl{std::move(home), core, std::move(state)})));
}

queue_pair::~queue_pair() {
    queue_pair_state& q = *impl_->state;
    rail_core& core = impl_->core;
    SLUICE_EXPECTS(q.sends.in_flight() == 0, "queue pair: destroyed with work in flight; see drain_now()");
    const bool at_home = executor::current() == &core.home();
    if (at_home) {
        core.take_out(q);
    } else {
        SLUICE_EXPECTS(q.user == nullptr, "queue pair: destroyed on a helper thread while it has a user");
        core.leave(q);
    }
    // From here on nobody looks at it but us.
    if (!q.gave_up()) api().destroy_qp(q.id);
    core.release(*q.send_cq, q.reserved);
    if (at_home) core.bury(std::move(impl_->state));
    else core.bury_later(std::move(impl_->state));
}

void queue_pair::set_user(queue_pair_user* user) noexcept {
    queue_pair_state& q = *impl_->state;
    q.user = user;
    q.had_user = true;
    if (!q.held.empty()) impl_->core.wants_attention(q, queue_pair_state::tell_frames);
    if (q.events != 0) impl_->core.wants_attention(q, queue_pair_state::tell_events);
}

void queue_pair::set_witness(const witness& of_peer) noexcept { impl_->state->sends.set_witness(of_peer); }

std::uint32_t queue_pair::room() const noexcept { return impl_->state->sends.room(); }

void queue_pair::add(const work& w) noexcept {
    queue_pair_state& q = *impl_->state;
    q.sends.push(w);
    if (!q.failed) [[likely]]
        impl_->core.wants_posting(q);
    else impl_->core.wants_attention(q, queue_pair_state::tell_returned);
}

void queue_pair::post_now() noexcept { impl_->core.post_now(*impl_->state); }

std::uint32_t queue_pair::in_flight() const noexcept { return impl_->state->sends.in_flight(); }

result<void> queue_pair::tune() {
    queue_pair_state& q = *impl_->state;
    device& on = impl_->core.on();
    // iWARP has no such timer: TCP beneath it holds the sender up.
    if (q.gave_up() || on.quirks().iwarp) return {};
    ibv_qp_attr attributes{};
    attributes.min_rnr_timer = min_rnr_timer;
    if (const int failed = api().modify_qp(q.qp, &attributes, IBV_QP_MIN_RNR_TIMER); failed != 0)
        return error::from_errno(failed < 0 ? -failed : failed, "ibv_modify_qp on " + on.name() + ": min_rnr_timer = " +
                                                                    std::to_string(min_rnr_timer));
    return {};
}

void queue_pair::fail() noexcept { impl_->core.fail(*impl_->state); }

void queue_pair::tell_events() noexcept { rail_core::tell_events(*impl_->state); }

bool queue_pair::drained() const noexcept { return impl_->state->drained(); }

bool queue_pair::drain_now(std::chrono::nanoseconds limit) noexcept {
    queue_pair_state& q = *impl_->state;
    rail_core& core = impl_->core;
    SLUICE_EXPECTS(!core.in_poll(), "queue pair: drain_now() from within a callback");
    core.fail(q);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!q.drained() && std::chrono::steady_clock::now() < end) {
        core.on().drain_events();
        core.check_draining();
        if (!core.poll()) std::this_thread::yield();
    }
    const bool in_time = q.drained();
    if (!in_time) core.give_up(q);
    while (!q.drained()) static_cast<void>(core.poll());
    return in_time && !q.gave_up();
}

std::uint32_t queue_pair::number() const noexcept { return impl_->state->number; }

std::uint32_t queue_pair::inline_bytes() const noexcept { return impl_->state->sends.inline_bytes(); }

rail& queue_pair::home() const noexcept { return *impl_->home; }

} // namespace sluice::rdma
