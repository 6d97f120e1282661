#include "tests/rdma/fake_verbs.hpp"
#include "tests/rdma/fake_world.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::testing {

namespace {

int failed_with(int error) noexcept {
    errno = error;
    return error;
}

// ---- completion queues ----

ibv_comp_channel* create_comp_channel(ibv_context* context) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("create_comp_channel", context)) {
        errno = error;
        return nullptr;
    }
    auto made = std::make_unique<fake_channel>();
    made->context = context;
    made->fd = made->events.get();
    return w.channels.emplace_back(std::move(made)).get();
}

int destroy_comp_channel(ibv_comp_channel* channel) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("destroy_comp_channel", channel->context)) return failed_with(error);
    fake_channel& mine = w.of(w.channels, channel);
    if (mine.refcnt != 0) {
        w.broken("destroy_comp_channel: completion queues use it");
        return failed_with(EBUSY);
    }
    w.drop(w.channels, mine);
    return 0;
}

ibv_cq* create_cq(ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel, int vector) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    int error = w.enter("create_cq", context);
    const auto& device = static_cast<const fake_device&>(*context);
    if (error == 0 && (entries <= 0 || entries > device.options.limits.max_cqe)) error = EINVAL;
    if (error == 0 && (vector < 0 || vector >= context->num_comp_vectors)) error = EINVAL;
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    auto made = std::make_unique<fake_cq>();
    made->context = context;
    made->channel = channel;
    made->cq_context = cookie;
    made->cqe = entries;
    if (channel != nullptr) ++channel->refcnt;
    return w.cqs.emplace_back(std::move(made)).get();
}

int destroy_cq(ibv_cq* cq) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("destroy_cq", cq->context)) return failed_with(error);
    fake_cq& mine = w.of(w.cqs, cq);
    if (mine.users != 0) {
        w.broken("destroy_cq: " + std::to_string(mine.users) + " queue pairs use it");
        return failed_with(EBUSY);
    }
    if (mine.unacknowledged + mine.unacknowledged_async != 0)
        w.broken("destroy_cq: " + std::to_string(mine.unacknowledged + mine.unacknowledged_async) +
                 " events are not acknowledged; verbs would wait for ever");
    if (mine.channel != nullptr) {
        auto& channel = w.of(w.channels, mine.channel);
        --channel.refcnt;
        const std::size_t gone = std::erase(channel.queued, &mine); // nobody got them
        for (std::size_t i = 0; i < gone; ++i) channel.events.lower();
    }
    w.drop(w.cqs, mine);
    return 0;
}

int poll_cq(ibv_cq* cq, int entries, ibv_wc* into) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("poll_cq", cq->context)) return -failed_with(error);
    fake_cq& mine = w.of(w.cqs, cq);
    int count = 0;
    while (count < entries && !mine.entries.empty()) {
        const fake_cq::entry& first = mine.entries.front();
        into[count++] = first.completion;
        if (first.sender != nullptr) first.sender->used -= first.retires;
        mine.entries.pop_front();
    }
    return count;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("req_notify_cq", cq->context)) return failed_with(error);
    fake_cq& mine = w.of(w.cqs, cq);
    if (solicited_only != 0) w.broken("req_notify_cq: nobody sends solicited events here");
    if (mine.channel == nullptr) w.broken("req_notify_cq: the completion queue has no channel");
    mine.is_armed = true; // what is queued already wakes nobody [ibv_get_cq_event(3)]
    return 0;
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cookie) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("get_cq_event")) {
        errno = error;
        return -1;
    }
    fake_channel& mine = w.of(w.channels, channel);
    if (mine.queued.empty()) {
        if (mine.events.blocks()) w.broken("get_cq_event: nothing is there, and the descriptor blocks");
        errno = EAGAIN;
        return -1;
    }
    fake_cq* const first = mine.queued.front();
    mine.queued.pop_front();
    mine.events.lower();
    ++first->unacknowledged;
    ++w.unacknowledged;
    *cq = first;
    *cookie = first->cq_context;
    return 0;
}

void ack_cq_events(ibv_cq* cq, unsigned events) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.enter("ack_cq_events");
    fake_cq& mine = w.of(w.cqs, cq);
    if (mine.unacknowledged < events) {
        w.broken("ack_cq_events: " + std::to_string(events) + " acknowledged, got were " +
                 std::to_string(mine.unacknowledged));
        return;
    }
    mine.unacknowledged -= events;
    w.unacknowledged -= events;
}

// ---- shared receive queues ----

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    int error = w.enter("create_srq", pd->context);
    const auto& limits = static_cast<const fake_device&>(*pd->context).options.limits;
    if (error == 0 &&
        (attributes->attr.max_wr == 0 || attributes->attr.max_wr > static_cast<unsigned>(limits.max_srq_wr)))
        error = EINVAL;
    if (error == 0 && attributes->attr.max_sge > static_cast<unsigned>(limits.max_srq_sge)) error = EINVAL;
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    auto made = std::make_unique<fake_srq>();
    made->context = pd->context;
    made->srq_context = attributes->srq_context;
    made->pd = pd;
    made->room = attributes->attr.max_wr;
    ++w.of(w.pds, pd).users;
    return w.srqs.emplace_back(std::move(made)).get();
}

int destroy_srq(ibv_srq* srq) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("destroy_srq", srq->context)) return failed_with(error);
    fake_srq& mine = w.of(w.srqs, srq);
    if (mine.users != 0) {
        w.broken("destroy_srq: " + std::to_string(mine.users) + " queue pairs use it");
        return failed_with(EBUSY);
    }
    if (mine.unacknowledged_async != 0) w.broken("destroy_srq: events are not acknowledged; verbs would wait for ever");
    --w.of(w.pds, mine.pd).users;
    w.drop(w.srqs, mine);
    return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    fake_srq& mine = w.of(w.srqs, srq);
    const int planned = w.enter("post_srq_recv");
    for (; list != nullptr; list = list->next) {
        int error = planned;
        fake_receive one{list->wr_id, {list->sg_list, list->sg_list + list->num_sge}};
        if (error == 0 && mine.receives.size() >= mine.room) error = ENOMEM;
        for (const ibv_sge& part : one.parts)
            if (error == 0 &&
                w.memory_of(mine.pd, part.addr, part.length, part.lkey, false, IBV_ACCESS_LOCAL_WRITE) == nullptr)
                w.broken("post_srq_recv: a range that its local key does not cover, or not for writing");
        if (error != 0) {
            *bad = list;
            return failed_with(error);
        }
        mine.receives.push_back(std::move(one));
    }
    return 0;
}

// ---- queue pairs ----

/// Into the send queue; where it stops, and why.
int take_list(fake_world& w, fake_qp& mine, ibv_send_wr* list, ibv_send_wr** bad) {
    const int planned = w.enter("post_send");
    const auto stop = std::exchange(w.stop_list, std::nullopt);
    std::size_t taken = 0;
    for (; list != nullptr; list = list->next, ++taken) {
        int error = planned;
        if (stop && taken == stop->taken) {
            if (stop->names_the_next) *bad = list;
            return stop->error;
        }
        const bool inlined = (list->send_flags & IBV_SEND_INLINE) != 0;
        fake_work one{&mine, *list, {list->sg_list, list->sg_list + list->num_sge}, {}};
        one.request.next = nullptr;
        one.request.sg_list = nullptr;
        if (error == 0 && mine.state != IBV_QPS_RTS && mine.state != IBV_QPS_ERR && mine.state != IBV_QPS_SQD)
            error = EINVAL;
        if (error == 0 && mine.used >= mine.init.cap.max_send_wr) error = ENOMEM;
        if (error == 0 && one.parts.size() > mine.init.cap.max_send_sge) error = EINVAL;
        if (error == 0 && inlined && length_of(one.parts) > mine.init.cap.max_inline_data) error = EINVAL;
        if (error != 0) {
            *bad = list;
            return error;
        }
        if (inlined) {
            one.inlined = one.payload();
            one.parts.clear();
        }
        ++mine.used;
        mine.work.push_back(std::move(one));
    }
    return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    fake_qp& mine = w.of(w.qps, qp);
    const int error = take_list(w, mine, list, bad);
    if (w.hands_over_at_once && mine.state == IBV_QPS_RTS) w.hand_over(mine);
    if (error != 0) return failed_with(error);
    if (mine.state == IBV_QPS_ERR && w.flushes_at_once) w.flush(mine);
    if (w.automatic) w.execute_all();
    return 0;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("modify_qp", qp->context)) return failed_with(error);
    fake_qp& mine = w.of(w.qps, qp);
    mine.modifications.push_back(*attributes);
    if ((mask & IBV_QP_STATE) == 0) return 0;
    if ((mask & IBV_QP_PATH_MTU) != 0) {
        if (attributes->qp_state != IBV_QPS_RTR) w.broken("modify_qp: a path MTU is set on the way to RTR only");
        mine.path_mtu = attributes->path_mtu;
    }
    if (attributes->qp_state == IBV_QPS_RESET && !mine.work.empty()) w.broken("modify_qp: reset with work in flight");
    if (attributes->qp_state == IBV_QPS_ERR) w.fail_qp(mine);
    else mine.state = attributes->qp_state;
    return 0;
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("query_qp")) return failed_with(error);
    fake_qp& mine = w.of(w.qps, qp);
    *attributes = {};
    attributes->qp_state = attributes->cur_qp_state = mine.state;
    attributes->cap = mine.init.cap;
    *init = mine.init;
    return 0;
}

} // namespace

void fill_queue_calls(rdma::verbs& table) {
    table.create_comp_channel = create_comp_channel;
    table.destroy_comp_channel = destroy_comp_channel;
    table.create_cq = create_cq;
    table.destroy_cq = destroy_cq;
    table.poll_cq = poll_cq;
    table.req_notify_cq = req_notify_cq;
    table.get_cq_event = get_cq_event;
    table.ack_cq_events = ack_cq_events;
    table.create_srq = create_srq;
    table.destroy_srq = destroy_srq;
    table.post_srq_recv = post_srq_recv;
    table.post_send = post_send;
    table.modify_qp = modify_qp;
    table.query_qp = query_qp;
}

fake_mr* fake_world::memory_of(ibv_pd* pd, std::uint64_t address, std::uint64_t bytes, std::uint32_t key, bool remote,
                               int access) {
    for (auto& each : mrs) {
        if ((remote ? each->rkey : each->lkey) != key || each->pd != pd) continue;
        const auto start = reinterpret_cast<std::uint64_t>(each->addr);
        const bool inside = address >= start && bytes <= each->length && address - start <= each->length - bytes;
        return inside && (each->access & access) == access ? each.get() : nullptr;
    }
    return nullptr;
}

void fake_world::push(fake_cq& cq, const fake_cq::entry& entry) {
    if (cq.entries.size() >= static_cast<std::size_t>(cq.cqe)) {
        broken("a completion queue of " + std::to_string(cq.cqe) + " entries ran over");
        return;
    }
    cq.entries.push_back(entry);
    if (!std::exchange(cq.is_armed, false)) return;
    auto& channel = of(channels, cq.channel);
    channel.queued.push_back(&cq);
    channel.events.raise();
}

/// The oldest work of the queue pair is done.
void fake_world::finish(fake_qp& qp, ibv_wc_status status, std::uint32_t vendor_error, std::uint32_t bytes) {
    const fake_work work = std::move(qp.work.front());
    qp.work.pop_front();
    const bool asked = (work.request.send_flags & IBV_SEND_SIGNALED) != 0 || qp.init.sq_sig_all != 0;
    if (work.handed_over) { // it has completed, whatever becomes of it
        if (!asked) ++qp.unsignaled;
        if (status != IBV_WC_SUCCESS) fail_qp(qp);
        return;
    }
    if (status == IBV_WC_SUCCESS && !asked) {
        ++qp.unsignaled;
        return;
    }
    fake_cq::entry entry{};
    entry.completion.wr_id = work.request.wr_id;
    entry.completion.status = status;
    entry.completion.vendor_err = vendor_error;
    entry.completion.qp_num = qp.qp_num;
    if (status == IBV_WC_SUCCESS) { // the rest is undefined otherwise [ibv_poll_cq(3)]
        entry.completion.byte_len = bytes;
        switch (work.request.opcode) {
        case IBV_WR_RDMA_READ: entry.completion.opcode = IBV_WC_RDMA_READ; break;
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM: entry.completion.opcode = IBV_WC_RDMA_WRITE; break;
        case IBV_WR_ATOMIC_CMP_AND_SWP: entry.completion.opcode = IBV_WC_COMP_SWAP; break;
        case IBV_WR_ATOMIC_FETCH_AND_ADD: entry.completion.opcode = IBV_WC_FETCH_ADD; break;
        default: entry.completion.opcode = IBV_WC_SEND;
        }
    } else {
        entry.completion.opcode = IBV_WC_DRIVER3;
        entry.completion.byte_len = 0xdeadbeef;
    }
    entry.sender = &qp;
    entry.retires = 1 + std::exchange(qp.unsignaled, 0);
    push(of(cqs, qp.send_cq), entry);
    if (status != IBV_WC_SUCCESS) fail_qp(qp);
}

void fake_world::fail_qp(fake_qp& qp) {
    if (qp.state == IBV_QPS_ERR) return;
    qp.state = IBV_QPS_ERR;
    if (flushes_at_once) flush(qp);
}

void fake_world::flush(fake_qp& qp) {
    while (!qp.work.empty()) finish(qp, IBV_WC_WR_FLUSH_ERR, 0, 0);
    if (qp.srq == nullptr || !static_cast<const fake_device&>(*qp.context).options.tells_last_wqe) return;
    if (std::exchange(qp.told_last_wqe, true)) return;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    event.element.qp = &qp;
    async(qp.context, event);
}

// ---- what the test says ----

void fake_verbs::stop_list(std::size_t taken, int error, bool names_the_next) {
    const std::lock_guard lock(world_->mutex);
    world_->stop_list = {taken, error, names_the_next};
}

void fake_verbs::automatic(bool on) {
    const std::lock_guard lock(world_->mutex);
    world_->automatic = on;
    if (on) world_->execute_all();
}
void fake_verbs::execute_all() {
    const std::lock_guard lock(world_->mutex);
    world_->execute_all();
}
void fake_verbs::wire(ibv_qp* a, ibv_qp* b) {
    const std::lock_guard lock(world_->mutex);
    fake_qp& first = world_->of(world_->qps, a);
    fake_qp& second = world_->of(world_->qps, b);
    first.peer = &second;
    second.peer = &first;
    first.state = second.state = IBV_QPS_RTS;
}
std::vector<fake_work> fake_verbs::waiting(ibv_qp* qp) const {
    const std::lock_guard lock(world_->mutex);
    const fake_qp& mine = world_->of(world_->qps, qp);
    return {mine.work.begin(), mine.work.end()};
}
void fake_verbs::complete(ibv_qp* qp, std::size_t count, ibv_wc_status status, std::uint32_t vendor_error) {
    const std::lock_guard lock(world_->mutex);
    fake_qp& mine = world_->of(world_->qps, qp);
    for (; count != 0 && !mine.work.empty(); --count) {
        const auto length =
            static_cast<std::uint32_t>(mine.work.front().inlined.size() + length_of(mine.work.front().parts));
        world_->finish(mine, status, vendor_error, length);
    }
    if (count != 0) world_->broken("complete: the test wants " + std::to_string(count) + " more than were posted");
}
void fake_verbs::deliver(ibv_qp* qp, std::span<const std::byte> bytes) {
    const std::lock_guard lock(world_->mutex);
    if (!world_->receive(world_->of(world_->qps, qp), bytes, nullptr))
        world_->broken("deliver: no receive is posted; a peer's send would fail");
}
void fake_verbs::fail_receive(ibv_qp* qp, ibv_wc_status status) {
    const std::lock_guard lock(world_->mutex);
    fake_qp& mine = world_->of(world_->qps, qp);
    fake_srq& srq = world_->of(world_->srqs, mine.srq);
    if (srq.receives.empty()) return world_->broken("fail_receive: no receive is posted");
    fake_cq::entry entry{};
    entry.completion.wr_id = srq.receives.front().id;
    entry.completion.status = status;
    entry.completion.qp_num = mine.qp_num;
    entry.completion.opcode = IBV_WC_DRIVER3;
    srq.receives.pop_front();
    world_->push(world_->of(world_->cqs, mine.recv_cq), entry);
    world_->fail_qp(mine);
}
void fake_verbs::flushes_at_once(bool on) {
    const std::lock_guard lock(world_->mutex);
    world_->flushes_at_once = on;
}
void fake_verbs::hands_over_at_once(bool on) {
    const std::lock_guard lock(world_->mutex);
    world_->hands_over_at_once = on;
}
void fake_verbs::flush(ibv_qp* qp) {
    const std::lock_guard lock(world_->mutex);
    world_->flush(world_->of(world_->qps, qp));
}
void fake_verbs::set_state(ibv_qp* qp, ibv_qp_state state) {
    const std::lock_guard lock(world_->mutex);
    fake_qp& mine = world_->of(world_->qps, qp);
    if (state == IBV_QPS_ERR) world_->fail_qp(mine);
    else mine.state = state;
}
std::size_t fake_verbs::receives_posted(ibv_srq* srq) const {
    const std::lock_guard lock(world_->mutex);
    return world_->of(world_->srqs, srq).receives.size();
}
std::size_t fake_verbs::queued_completions(ibv_cq* cq) const {
    const std::lock_guard lock(world_->mutex);
    return world_->of(world_->cqs, cq).entries.size();
}
bool fake_verbs::armed(ibv_cq* cq) const {
    const std::lock_guard lock(world_->mutex);
    return world_->of(world_->cqs, cq).is_armed;
}
ibv_qp_init_attr fake_verbs::init_of(ibv_qp* qp) const {
    const std::lock_guard lock(world_->mutex);
    return world_->of(world_->qps, qp).init;
}
ibv_mtu fake_verbs::path_mtu(ibv_qp* qp) const {
    const std::lock_guard lock(world_->mutex);
    return world_->of(world_->qps, qp).path_mtu;
}
std::vector<ibv_qp_attr> fake_verbs::modifications(ibv_qp* qp) const {
    const std::lock_guard lock(world_->mutex);
    return world_->of(world_->qps, qp).modifications;
}
std::vector<ibv_qp*> fake_verbs::queue_pairs() const {
    const std::lock_guard lock(world_->mutex);
    std::vector<ibv_qp*> all;
    for (const auto& each : world_->qps) all.push_back(each.get());
    return all;
}
void fake_verbs::next_queue_pair_number(std::uint32_t number) {
    const std::lock_guard lock(world_->mutex);
    world_->next_qp_number = number;
}
void fake_verbs::stray_completion(ibv_cq* cq, std::uint64_t wr_id, std::uint32_t qp_num) {
    const std::lock_guard lock(world_->mutex);
    fake_cq::entry entry{};
    entry.completion.wr_id = wr_id;
    entry.completion.qp_num = qp_num;
    entry.completion.opcode = IBV_WC_RDMA_WRITE;
    world_->push(world_->of(world_->cqs, cq), entry);
}
void fake_verbs::spurious_event(ibv_cq* cq) {
    const std::lock_guard lock(world_->mutex);
    fake_cq& mine = world_->of(world_->cqs, cq);
    auto& channel = world_->of(world_->channels, mine.channel);
    channel.queued.push_back(&mine);
    channel.events.raise();
}

} // namespace sluice::testing
