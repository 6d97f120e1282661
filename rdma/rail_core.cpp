#include "rdma/rail_core.hpp"
#include "rdma/limits.hpp"
#include "rdma/quirks.hpp"

#include "runtime/joined_call.hpp"
#include "runtime/log.hpp"

#include <sluice/operation.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <utility>

// How a rail is made, woken and taken down.
namespace sluice::rdma {

namespace {

// A completion queue and a shared receive queue have their memory for all entries from the start, which devices lock:
// so these are sizes that a hundred connections fill, not the largest there are.
constexpr std::uint32_t slots_wanted = 12288; // 48 MiB of slots, if all are added
constexpr std::uint32_t slots_least = 256;
constexpr std::uint32_t sends_of_first_queue = 4095;

// The page of the witness: what peers read, and in another cache line what was read from them.
constexpr std::size_t read_from_peers_at = 64;
constexpr std::size_t witness_page_bytes = 2 * read_from_peers_at;

error no_shared_queues(const device& on) {
    return {make_error_code(errc::unsupported),
            on.name() + " has no shared receive queues (max_srq_wr " + std::to_string(on.limits().max_srq_wr) +
                ", max_cqe " + std::to_string(on.limits().max_cqe) + "); use another device, or tcp"};
}

} // namespace

rail_core::rail_core(executor& home, device& on) noexcept : device_observer(home), on_(on), api_(api()) {
    timer_.self = this;
    timer_.fire = [](detail::timer_node& node) noexcept { static_cast<drain_timer&>(node).self->check_draining(); };
}

result<std::unique_ptr<rail_core>> rail_core::create(executor& home, device& on) {
    std::unique_ptr<rail_core> made(new rail_core(home, on));
    errno = 0;
    made->channel_ = made->api_.create_comp_channel(on.context());
    if (made->channel_ == nullptr) return verbs_error(errno, "ibv_create_comp_channel on " + on.name());
    const int flags = fcntl(made->channel_->fd, F_GETFL);
    if (flags < 0 || fcntl(made->channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error::from_errno(errno, "completion channel of " + on.name() + ": O_NONBLOCK");
    const auto allowed = [](int limit) { return static_cast<std::uint32_t>(std::max(limit, 0)); };
    std::uint32_t slots = std::min({slots_wanted, allowed(on.limits().max_srq_wr), allowed(on.limits().max_cqe) / 2});
    if (slots == 0) return no_shared_queues(on);
    result<void> done = made->make_queues(slots);
    // Where little memory may be locked, fewer slots are better than none.
    while (!done && done.error() == condition::out_of_resources && slots / 2 >= slots_least) {
        slots /= 2;
        done = made->make_queues(slots);
    }
    if (!done) return done.error();
    if (on.quirks().confirms_by_reading) {
        auto page = private_memory::create(on, witness_page_bytes, true);
        if (!page) return page.error();
        made->witness_ = std::move(*page);
    }
    return made;
}

result<void> rail_core::make_queues(std::uint32_t slots) {
    const std::uint32_t sends =
        std::min(sends_of_first_queue, static_cast<std::uint32_t>(on_.limits().max_cqe) - slots);
    auto queue = completion_queue::create(on_, channel_, slots + std::min(sends, slots));
    if (!queue) return queue.error();
    auto receives = receive_queue::create(on_, slots);
    if (!receives) return receives.error();
    // Every slot may come back at once, whatever a peer sends.
    const bool room = (*queue)->reserve(slots);
    SLUICE_EXPECTS(room, "rail: a completion queue without room for the receives");
    receives_ = std::move(*receives);
    first_ = queue->get();
    owned_queues_.push_back(std::move(*queue));
    queues_.push_back(first_);
    queues_taken_ = 1;
    return {};
}

std::optional<rdma::witness> rail_core::witness() const noexcept {
    if (!witness_) return std::nullopt;
    return rdma::witness{reinterpret_cast<std::uint64_t>(witness_->data()), witness_->remote_key()};
}

ibv_sge rail_core::read_from_witness() const noexcept {
    SLUICE_EXPECTS(witness_.has_value(), "rail: a device that does not confirm by reading has no witness");
    return {reinterpret_cast<std::uint64_t>(witness_->data() + read_from_peers_at), 1, witness_->local_key()};
}

void rail_core::start() {
    started_ = true;
    home().add_poll_source(*this);
    on_.add(*this);
    channel_watch_ = watch_channel(*this);
    channel_watch_.start(home());
    device_watch_ = watch_device(*this);
    device_watch_.start(home());
    gid_watch_ = watch_gids(*this);
    gid_watch_.start(home());
}

rail_core::~rail_core() {
    if (started_) {
        SLUICE_EXPECTS(executor::current() == &home(), "rail: destroyed on another thread than its executor's");
        home().remove_poll_source(*this);
        if (timer_.linked) home().remove_timer(timer_);
        channel_watch_.end(home());
        device_watch_.end(home());
        gid_watch_.end(home());
        on_.remove(*this);
    }
    take_changes();
    delete_dead();
    SLUICE_EXPECTS(pairs_.size() == 0, "rail: destroyed before its queue pairs");
    const std::uint32_t slots = receives_ == nullptr ? 0 : receives_->slots_max();
    receives_.reset();
    if (first_ != nullptr) first_->release(slots);
    owned_queues_.clear(); // which acknowledges their events
    if (channel_ == nullptr) return;
    if (const int failed = api_.destroy_comp_channel(channel_); failed != 0)
        SLUICE_LOG(error, "ibv_destroy_comp_channel on ", on_.name(), ": ", std::strerror(failed));
}

net::background rail_core::watch_channel(rail_core& self) {
    for (;;) {
        co_await self.sleeps_.wait(); // so that the ring is asked in the call that sleeps, and not in one of its own
        const auto ready = co_await readiness(self.channel_->fd, POLLIN);
        self.channel_watched_ = false;
        if (!ready) co_return;
        // Without POLLIN the device is gone [poll(2)].
        if ((*ready & POLLIN) == 0 || !self.drain_channel()) break;
    }
    self.break_all("the completion channel", EIO);
}

net::background rail_core::watch_device(rail_core& self) {
    for (;;) {
        const auto ready = co_await readiness(self.on_.event_fd(), POLLIN);
        if (!ready || (*ready & POLLIN) == 0) co_return;
        self.on_.drain_events();
    }
}

net::background rail_core::watch_gids(rail_core& self) {
    for (;;) {
        co_await self.gids_changed_.wait();
        while (!self.ports_changed_.empty()) {
            const std::uint8_t port = self.ports_changed_.back();
            self.ports_changed_.pop_back(); // before it is read: a later change asks again
            auto reading = detail::run_joined([&self, port] { self.read_gids_of(port); });
            co_await reading;
            self.tell_who_lost_its_gid(port);
        }
    }
}

/// On a helper thread: a call into the kernel for each place of the table.
void rail_core::read_gids_of(std::uint8_t port) {
    table_.reset();
    ibv_port_attr attributes{};
    if (api_.query_port(on_.context(), port, &attributes) != 0) return; // the device goes, and says so itself
    table_ = read_gids(on_.context(), port, attributes.gid_tbl_len);
}

void rail_core::tell_who_lost_its_gid(std::uint8_t port) {
    if (!table_) return;
    if (changed_.load(std::memory_order_acquire)) take_changes();
    pairs_.for_each([&](queue_pair_state& q) {
        if (q.port != port || q.own_gid.is_zero()) return;
        if (std::ranges::count(*table_, q.own_gid, &gid_entry::address) == 0) add_event(q, IBV_EVENT_GID_CHANGE);
    });
}

/// Until there is none. Only of a queue that is armed there can be one, so that the usual single event costs one look
/// and not two. False when the channel does not work any more.
bool rail_core::drain_channel() noexcept {
    const auto may_come = [this] {
        return std::any_of(queues_.begin(), queues_.end(), [](const completion_queue* q) { return q->armed(); });
    };
    do {
        ibv_cq* cq = nullptr;
        void* cookie = nullptr;
        errno = 0;
        if (api_.get_cq_event(channel_, &cq, &cookie) != 0) {
            if (errno == EINTR) continue;
            return errno == EAGAIN; // also when it was ready for nothing
        }
        ++stats_.events;
        static_cast<completion_queue*>(cookie)->on_event();
    } while (may_come());
    return true;
}

void rail_core::break_all(const char* call, int reason) noexcept {
    take_changes();
    for (completion_queue* queue : queues_) queue->mark_broken(call, reason);
}

void rail_core::on_device_event(ibv_event_type what, std::uint32_t qp_num, std::uint8_t port) noexcept {
    switch (what) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        if (queue_pair_state* const q = find(qp_num); q != nullptr) {
            add_event(*q, what);
            if (what == IBV_EVENT_QP_LAST_WQE_REACHED) wants_attention(*q, queue_pair_state::tell_receives_done);
            fail(*q); // it is in error already, but for us to know
        }
        return;
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
        if (queue_pair_state* const q = find(qp_num); q != nullptr) add_event(*q, what);
        return;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR: break_all(what == IBV_EVENT_CQ_ERR ? "IBV_EVENT_CQ_ERR" : "IBV_EVENT_SRQ_ERR", EIO); return;
    case IBV_EVENT_DEVICE_FATAL:
        device_gone_ = true;
        break_all("IBV_EVENT_DEVICE_FATAL", EIO);
        pairs_.for_each([&](queue_pair_state& q) { add_event(q, what); });
        return;
    case IBV_EVENT_GID_CHANGE: // says neither which one nor how
        if (std::ranges::count(ports_changed_, port) == 0) ports_changed_.push_back(port);
        gids_changed_.nudge();
        return;
    default:
        if (port == 0) return;
        pairs_.for_each([&](queue_pair_state& q) {
            if (q.port == port) add_event(q, what);
        });
    }
}

bool rail_core::owns_queue(const void* queue) const noexcept {
    if (queue == receives_->get()) return true;
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(owned_queues_, [&](const auto& each) { return each->get() == queue; });
}

rail::stats rail_core::counters() const noexcept {
    rail::stats s = stats_;
    s.queue_pairs = static_cast<std::uint32_t>(pairs_.size());
    s.slots = receives_->slots();
    return s;
}

} // namespace sluice::rdma
