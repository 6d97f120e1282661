#include "rdma/connection_manager.hpp"

#include <sluice/contract.hpp>
#include <sluice/operation.hpp>

#include "rdma/connection_manager_impl.hpp"
#include "runtime/log.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <mutex>
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

connection_manager::impl::drained connection_manager::impl::drain() noexcept {
    for (int left = 64; left > 0; --left) {
        rdma_cm_id* to = nullptr;
        cm_event e;
        {
            const std::unique_lock lock(being_used, std::try_to_lock);
            if (!lock && silences == 0) continue; // it may fail for nothing [std::shared_mutex::try_lock]
            if (!lock) return drained::held_back;
            rdma_cm_event* raw = nullptr;
            errno = 0;
            if (api().get_cm_event(channel, &raw) != 0) {
                if (errno == EAGAIN) return drained::fine;
                if (errno == EINTR) continue;
                SLUICE_LOG_ONCE(error, "RDMA connection manager: rdma_get_cm_event: ", std::strerror(errno),
                                "; it is tried again");
                return drained::failed;
            }
            const int cause = errno;
            to = raw->event == RDMA_CM_EVENT_CONNECT_REQUEST ? raw->listen_id : raw->id;
            e = take(raw, cause);
        }
        const auto found = ids.find(to);
        if (found == ids.end() || found->second->observer_ == nullptr) continue; // a request for nobody goes with its id
        cm_id& id = *found->second;
        id.observer_->on_cm_event(id, std::move(e));
    }
    return drained::fine;
}

cm_event connection_manager::impl::take(rdma_cm_event* raw, int cause) noexcept {
    cm_event e = copy_of(*raw);
    // A step that librdmacm took before it gave the event out, such as making the queue pair ready, failed
    // [rdma_seterrno in its rdma_cma.h].
    if (e.status == cm_event::failed_here && cause != 0) e.status = -cause;
    if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) e.request.reset(new cm_id(owner->shared_from_this(), raw->id));
    // Before anything else, on every path: rdma_destroy_id waits until all events of its id are [rdma_destroy_id(3)].
    api().ack_cm_event(raw);
    return e;
}

void connection_manager::impl::pause() noexcept {
    pausing.deadline = detail::deadline_after(std::chrono::milliseconds(100));
    home.add_timer(pausing);
}

net::background connection_manager::impl::watch() {
    for (;;) {
        readiness readable(channel->fd, POLLIN);
        const auto events = co_await readable;
        drained how = drained::failed;
        if (events.has_value()) {
            // An observer may drop the last id, and with it this.
            std::shared_ptr<connection_manager> self = owner->shared_from_this();
            how = drain();
            if (self.use_count() == 1) {
                watcher.let_go();
                self.reset();
                co_return;
            }
        }
        if (how == drained::fine) continue;
        if (how == drained::held_back) held_back = true;
        else pause(); // asking at once would spin
        co_await resume.wait();
    }
}

cm_silence::cm_silence(connection_manager& of) : of_(of.shared_from_this()) {
    SLUICE_EXPECTS(executor::current() == &of.home(), "connection manager: silence wanted on another thread than its own");
    ++of.internals().silences;
}

cm_silence::~cm_silence() {
    connection_manager::impl& channel = of_->internals();
    SLUICE_EXPECTS(channel.silences > 0, "connection manager: an end of silence without a beginning");
    --channel.silences;
    if (std::exchange(channel.held_back, false)) channel.resume.nudge();
}

std::shared_lock<std::shared_mutex> cm_silence::begin() { return std::shared_lock(of_->internals().being_used); }

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
