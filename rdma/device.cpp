#include "rdma/device.hpp"
#include "rdma/device_impl.hpp"
#include "rdma/limits.hpp"

#include <sluice/blocking.hpp>
#include <sluice/contract.hpp>
#include <sluice/event.hpp>

#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <utility>

namespace sluice::rdma {

namespace {

/// A message must fit: 2^31 is what verbs can express [ibv_query_port(3)], and less than a frame would be of no use.
constexpr std::uint32_t message_bytes_most = std::uint32_t{1} << 31;
constexpr std::uint32_t message_bytes_least = 4096;

/// A task that waits until nobody opens its context.
struct waiting_task : detail::posted_node {
    waiting_task(const ibv_context* c, executor& h) noexcept : context(c), home(h) {
        run = [](detail::posted_node& node) noexcept { static_cast<waiting_task&>(node).through.set(); };
    }
    const ibv_context* context;
    executor& home;
    event through;
};

/// All devices of the process. Not destroyed: threads may use them until the very end.
struct open_devices {
    std::mutex mutex; // for the books alone, never while a device is opened: that takes as long as memory is large
    std::condition_variable decided;
    std::vector<device*> all;
    std::vector<device*> gone;                 // may still be used
    std::vector<const ibv_context*> in_making; // a thread opens them, or looks whether they are alive, just now
    std::vector<const ibv_context*> asked_for; // by a task, whose call may wait for a helper thread still
    std::vector<waiting_task*> tasks;

    static open_devices& instance() noexcept {
        static auto& only = *new open_devices;
        return only;
    }
    device* find(const ibv_context* context) const noexcept {
        const auto known = std::ranges::find(all, context, &device::context);
        return known == all.end() ? nullptr : *known;
    }
    void put_aside(device& one) {
        if (std::erase(all, &one) != 0) gone.push_back(&one);
    }
    static bool enter(std::vector<const ibv_context*>& list, const ibv_context* context) {
        if (std::ranges::count(list, context) != 0) return false;
        list.push_back(context);
        return true;
    }
    void made(const ibv_context* context) {
        std::erase(in_making, context);
        decided.notify_all();
    }
    void answered(const ibv_context* context) {
        const std::lock_guard lock(mutex);
        std::erase(asked_for, context);
        std::erase_if(tasks, [&](waiting_task* each) {
            if (each->context != context) return false;
            each->home.post(*each);
            return true;
        });
    }
};

result<void> make_non_blocking(int fd, const std::string& name) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error::from_errno(errno, "events of " + name + ": O_NONBLOCK");
    return {};
}

} // namespace

device::impl::impl(ibv_context* on)
    : context(on), name(on->device->name),
      not_announced(make_error_code(errc::invalid_argument),
                    "memory that " + name + " does not know; take it from the pool, or make a memory_region of it"),
      events(on, name, alive) {}

device::impl::~impl() {
    if (registers) detail::remove_registrar(*this);
    if (pd == nullptr) return;
    const int failed = api().dealloc_pd(pd);
    if (failed != 0 && alive) SLUICE_LOG(error, "ibv_dealloc_pd on ", name, ": ", std::strerror(failed));
}

result<void> device::impl::open() {
    auto known = held_devices::take();
    if (!known) return std::move(known).error();
    if (!known->contains(context)) return error::from_errno(ENODEV, "rdma device " + name + " is gone");
    held = std::move(*known);
    // Linux copies registered pages for the child since 5.12, so that there is nothing to prepare; ibv_fork_init()
    // would split mappings until there are too many [ibv_is_fork_initialized(3), vm.max_map_count].
    if (api().is_fork_initialized() == IBV_FORK_DISABLED)
        SLUICE_LOG_ONCE(warning, "rdma: on this kernel a child of fork() takes registered memory from its parent; set "
                                 "RDMAV_FORK_SAFE=1 if this program forks without exec");
    if (auto done = make_non_blocking(context->async_fd, name); !done) return done;
    if (const int failed = api().query_device(context, &limits); failed != 0)
        return verbs_error(failed, "ibv_query_device on " + name);
    for (unsigned port = 1; port <= limits.phys_port_cnt; ++port) {
        ibv_port_attr attributes{};
        if (const int failed = api().query_port(context, static_cast<std::uint8_t>(port), &attributes); failed != 0)
            return verbs_error(failed, "ibv_query_port of port " + std::to_string(port) + " on " + name);
        max_message_bytes.push_back(std::clamp(attributes.max_msg_sz, message_bytes_least, message_bytes_most));
    }
    quirks = quirks_of(*context->device, limits);
    relaxed_ordering = quirks.relaxed_ordering;
    errno = 0;
    pd = api().alloc_pd(context);
    if (pd == nullptr) return verbs_error(errno, "ibv_alloc_pd on " + name);
    detail::add_registrar(*this);
    registers = true;
    const std::lock_guard lock(mutex);
    if (refused) return *refused;
    SLUICE_LOG(info, "rdma: opened ", name, ", ", quirks.kind);
    return {};
}

device::device(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}
device::~device() = default;

result<device*> device::of(ibv_context* context) {
    SLUICE_EXPECTS(context != nullptr, "rdma device: an id that is bound to no device");
    open_devices& open = open_devices::instance();
    std::unique_lock lock(open.mutex);
    // For a thread that is at work, never for a call that is still to come: that may need this thread.
    open.decided.wait(lock, [&] { return open_devices::enter(open.in_making, context); });
    if (device* const there = open.find(context)) {
        lock.unlock();
        there->drain_events(); // where no rail watches them, nobody has heard yet that it is gone
        lock.lock();
        if (there->is_alive()) {
            open.made(context);
            return there;
        }
        open.put_aside(*there);
    }
    lock.unlock();
    auto made = std::make_unique<impl>(context);
    auto done = made->open();
    if (!done) made.reset(); // what was registered goes again
    lock.lock();
    open.made(context);
    if (!done) return std::move(done).error();
    open.all.push_back(new device(std::move(made)));
    return open.all.back();
}

task<result<device*>> device::open(ibv_context* context) {
    SLUICE_EXPECTS(context != nullptr, "rdma device: an id that is bound to no device");
    open_devices& open = open_devices::instance();
    executor& home = co_await this_executor();
    for (;;) {
        waiting_task me(context, home);
        {
            const std::lock_guard lock(open.mutex);
            if (open_devices::enter(open.asked_for, context)) break;
            open.tasks.push_back(&me);
        }
        auto waited = co_await me.through.wait();
        if (waited) continue;
        bool posted = false;
        {
            const std::lock_guard lock(open.mutex);
            posted = std::erase(open.tasks, &me) == 0;
        }
        if (posted && !me.through.is_set()) home.forget(me);
        co_return std::move(waited).error();
    }
    co_return co_await run_blocking([context, &open] {
        auto found = of(context);
        open.answered(context);
        return found;
    });
}

device* device::known(const ibv_context* context) noexcept {
    open_devices& open = open_devices::instance();
    const std::lock_guard lock(open.mutex);
    return open.find(context);
}

void device::close_all() noexcept {
    open_devices& open = open_devices::instance();
    const std::lock_guard lock(open.mutex);
    for (auto* list : {&open.all, &open.gone})
        for (device* each : std::exchange(*list, {})) delete each;
}

const std::string& device::name() const noexcept { return impl_->name; }
ibv_context* device::context() const noexcept { return impl_->context; }
ibv_pd* device::pd() const noexcept { return impl_->pd; }
const ibv_device_attr& device::limits() const noexcept { return impl_->limits; }
const rdma::quirks& device::quirks() const noexcept { return impl_->quirks; }

std::uint32_t device::max_message_bytes(std::uint8_t port) const noexcept {
    SLUICE_EXPECTS(port >= 1 && port <= impl_->max_message_bytes.size(), "rdma device: no port of this number");
    return impl_->max_message_bytes[port - 1U];
}

bool device::is_alive() const noexcept { return impl_->alive.load(std::memory_order_relaxed); }

std::optional<bool> device::is_port_up(std::uint8_t port) const noexcept {
    ibv_port_attr now{};
    if (api().query_port(impl_->context, port, &now) != 0) return std::nullopt;
    return now.state == IBV_PORT_ACTIVE;
}

void device::add(device_observer& observer) { impl_->events.add(observer); }
void device::remove(device_observer& observer) noexcept { impl_->events.remove(observer); }
int device::event_fd() const noexcept { return impl_->context->async_fd; }

void device::drain_events() noexcept { impl_->events.drain(); }

} // namespace sluice::rdma
