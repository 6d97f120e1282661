#include "rdma/device_events.hpp"

#include <sluice/contract.hpp>

#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

namespace sluice::rdma {

struct device_events::listener : detail::posted_node, std::enable_shared_from_this<listener> {
    listener(device_events& from, device_observer& to) noexcept : hub(from), observer(to) {}
    device_events& hub;
    device_observer& observer;
    // under the hub's mutex
    std::deque<event> queue;
    bool posted = false;
    bool removed = false;
};

device_events::~device_events() {
    SLUICE_EXPECTS(listeners_.empty(), "rdma device: closed while somebody observes it");
}

device_events::event device_events::copy(const ibv_async_event& from) noexcept {
    event to{.what = from.event_type};
    switch (from.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: to.qp_num = from.element.qp->qp_num; break;
    case IBV_EVENT_CQ_ERR: to.queue = from.element.cq; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: to.queue = from.element.srq; break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE: to.port = static_cast<std::uint8_t>(from.element.port_num); break;
    default: break; // of the device, or of what isn't used here
    }
    return to;
}

void device_events::add(device_observer& observer) {
    SLUICE_EXPECTS(executor::current() == &observer.home(),
                   "rdma device: an observer was added on another thread than its own");
    auto made = std::make_shared<listener>(*this, observer);
    made->run = [](detail::posted_node& node) noexcept {
        auto& self = static_cast<listener&>(node);
        {
            const std::lock_guard lock(self.hub.mutex_);
            self.posted = false;
        }
        self.hub.deliver(self.shared_from_this());
    };
    const std::lock_guard lock(mutex_);
    listeners_.push_back(std::move(made));
}

void device_events::remove(device_observer& observer) noexcept {
    SLUICE_EXPECTS(executor::current() == &observer.home(),
                   "rdma device: an observer was removed on another thread than its own");
    std::shared_ptr<listener> gone;
    {
        const std::lock_guard lock(mutex_);
        const auto found =
            std::ranges::find_if(listeners_, [&](const auto& each) { return &each->observer == &observer; });
        SLUICE_EXPECTS(found != listeners_.end(), "rdma device: an observer that was not added was removed");
        gone = std::move(*found);
        listeners_.erase(found);
        gone->removed = true;
    }
    // Nobody posts it any more; on this thread it doesn't run meanwhile, except if this is called from within.
    if (gone->posted) observer.home().forget(*gone);
}

void device_events::drain() noexcept {
    std::vector<std::shared_ptr<listener>> here;
    bool gone = false;
    {
        const std::lock_guard lock(mutex_);
        gone = read_all();
        for (const auto& each : listeners_) {
            if (each->queue.empty()) continue;
            if (&each->observer.home() == executor::current()) here.push_back(each);
            else if (!std::exchange(each->posted, true)) each->observer.home().post(*each);
        }
    }
    if (gone) SLUICE_LOG(error, "rdma: ", name_, " is gone, or failed for good; its connections end");
    for (const auto& each : here) deliver(each);
}

/// Under the mutex, so that the order is the same for all. True when the device went just now.
bool device_events::read_all() {
    bool gone = false;
    for (;;) {
        ibv_async_event found{};
        errno = 0;
        event copied{.what = IBV_EVENT_DEVICE_FATAL};
        if (api().get_async_event(context_, &found) == 0) {
            copied = copy(found);
            api().ack_async_event(&found);
        } else {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || unreadable_) return gone; // also when it was ready for nothing
            unreadable_ = true;                              // its descriptor fails from the moment of its removal on
        }
        if (copied.what == IBV_EVENT_DEVICE_FATAL && alive_.exchange(false, std::memory_order_relaxed)) gone = true;
        for (const auto& each : listeners_) each->queue.push_back(copied);
    }
}

/// On the observer's thread. An observer may do anything meanwhile, so that everything is looked at anew each time.
void device_events::deliver(const std::shared_ptr<listener>& to) noexcept {
    for (;;) {
        event next{};
        {
            const std::lock_guard lock(mutex_);
            if (to->removed || to->queue.empty()) return;
            next = to->queue.front();
            to->queue.pop_front();
        }
        SLUICE_DEBUG_EXPECTS(executor::current() == &to->observer.home(),
                             "rdma device: an event on another thread than its observer's");
        if (next.queue != nullptr && !to->observer.owns_queue(next.queue)) continue;
        to->observer.on_device_event(next.what, next.qp_num, next.port);
    }
}

} // namespace sluice::rdma
