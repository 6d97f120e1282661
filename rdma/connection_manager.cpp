#include "rdma/connection_manager.hpp"

#include <sluice/contract.hpp>
#include <sluice/operation.hpp>

#include "rdma/connection_manager_impl.hpp"
#include "runtime/log.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <utility>

namespace sluice::rdma {

namespace {

/// The one of this thread's executor. It doesn't keep it alive: the ids do.
thread_local std::weak_ptr<connection_manager> of_this_thread;

error why_no_channel(int cause) {
    const char* text = "RDMA connection manager: rdma_create_event_channel";
    if (cause == EACCES || cause == EPERM)
        text = "RDMA connection manager: no permission for /dev/infiniband/rdma_cm; give this user or its group access "
               "to it";
    else if (cause == ENODEV || cause == ENOENT || cause == ENXIO)
        text =
            "RDMA connection manager: this machine has no RDMA device, or its module is not loaded (modprobe rdma_ucm)";
    return error::from_errno(cause, text);
}

bool carries_private_data(rdma_cm_event_type type) noexcept {
    return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
           type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_REJECTED;
}

cm_event copy_of(const rdma_cm_event& raw) {
    cm_event e;
    e.type = raw.event;
    e.status = raw.status;
    if (!carries_private_data(raw.event)) return e;
    const rdma_conn_param& with = raw.param.conn;
    e.responder_resources = with.responder_resources;
    e.initiator_depth = with.initiator_depth;
    if (with.private_data != nullptr) {
        const auto* begin = static_cast<const std::byte*>(with.private_data);
        e.private_data.assign(begin, begin + with.private_data_len);
    }
    return e;
}

} // namespace

connection_manager::impl::impl(executor& h, rdma_event_channel* c) noexcept : home(h), channel(c) {
    pausing.owner = this;
    pausing.fire = [](detail::timer_node& node) noexcept { static_cast<timer&>(node).owner->resume.nudge(); };
}

connection_manager::impl::~impl() {
    SLUICE_EXPECTS(ids.empty(), "connection manager: destroyed before its ids");
    if (pausing.linked) home.remove_timer(pausing);
    watcher.end(home);
    api().destroy_event_channel(channel);
}

bool connection_manager::impl::drain() noexcept {
    for (int left = 64; left > 0; --left) {
        rdma_cm_event* raw = nullptr;
        errno = 0;
        if (api().get_cm_event(channel, &raw) != 0) {
            if (errno == EAGAIN) return true;
            if (errno == EINTR) continue;
            SLUICE_LOG_ONCE(error, "RDMA connection manager: rdma_get_cm_event: ", std::strerror(errno),
                            "; it is tried again");
            return false;
        }
        hand_out(raw, errno);
    }
    return true;
}

void connection_manager::impl::hand_out(rdma_cm_event* raw, int cause) noexcept {
    cm_event e = copy_of(*raw);
    // A step that librdmacm took before it gave the event out, such as making the queue pair ready, failed
    // [rdma_seterrno in its rdma_cma.h].
    if (e.status == cm_event::failed_here && cause != 0) e.status = -cause;
    rdma_cm_id* to = raw->id;
    if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        e.request.reset(new cm_id(owner->shared_from_this(), raw->id));
        to = raw->listen_id;
    }
    // Before anything else, on every path: rdma_destroy_id waits until all events of its id are [rdma_destroy_id(3)].
    api().ack_cm_event(raw);
    const auto found = ids.find(to);
    if (found == ids.end() || found->second->observer_ == nullptr) return; // a request for nobody goes with its id
    cm_id& id = *found->second;
    id.observer_->on_cm_event(id, std::move(e));
}

void connection_manager::impl::pause() noexcept {
    pausing.deadline = detail::deadline_after(std::chrono::milliseconds(100));
    home.add_timer(pausing);
}

void connection_manager::impl::end_destroy() noexcept {
    SLUICE_EXPECTS(destroying > 0, "connection manager: an end of destroying without a beginning");
    if (--destroying == 0 && std::exchange(held, false)) resume.nudge();
}

net::background connection_manager::impl::watch() {
    for (;;) {
        while (destroying > 0) {
            held = true;
            co_await resume.wait();
        }
        readiness readable(channel->fd, POLLIN);
        const auto events = co_await readable;
        if (destroying > 0) continue;
        bool fine = events.has_value();
        if (fine) {
            // An observer may drop the last id, and with it this.
            std::shared_ptr<connection_manager> self = owner->shared_from_this();
            fine = drain();
            if (self.use_count() == 1) {
                watcher.let_go();
                self.reset();
                co_return;
            }
        }
        if (fine) continue;
        pause(); // asking at once would spin
        co_await resume.wait();
    }
}

result<std::shared_ptr<connection_manager>> connection_manager::of(executor& home) {
    SLUICE_EXPECTS(executor::current() == &home, "connection manager: asked for on another thread than the executor's");
    if (auto there = of_this_thread.lock(); there != nullptr && &there->home() == &home) return there;
    rdma_event_channel* channel = api().create_event_channel();
    if (channel == nullptr) return why_no_channel(errno);
    auto made = std::make_unique<impl>(home, channel);
    const int flags = ::fcntl(channel->fd, F_GETFL);
    if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error::from_errno(errno, "RDMA connection manager: its channel can't be made non-blocking");
    std::shared_ptr<connection_manager> self(new connection_manager(std::move(made)));
    of_this_thread = self;
    return self;
}

connection_manager::connection_manager(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {
    impl_->owner = this;
    impl_->watcher = impl_->watch();
    impl_->watcher.start(impl_->home);
}

connection_manager::~connection_manager() {
    SLUICE_EXPECTS(executor::current() == &impl_->home,
                   "connection manager: its last id was destroyed on another thread");
}

executor& connection_manager::home() const noexcept { return impl_->home; }

} // namespace sluice::rdma
