#include "tests/rdma/fake_verbs.hpp"
#include "tests/rdma/fake_world.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace sluice::testing {

namespace {

fake_world* current = nullptr;

/// What an errno-returning function of verbs gives back.
int failed_with(int error) noexcept {
    errno = error;
    return error;
}

fake_device& device_of(ibv_context* context) noexcept { return static_cast<fake_device&>(*context); }

// ---- devices ----

ibv_context** get_devices(int* count) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("get_devices")) {
        errno = error;
        return nullptr;
    }
    w.close_unplugged();
    auto** list = static_cast<ibv_context**>(std::calloc(w.devices.size() + 1, sizeof(ibv_context*)));
    std::size_t i = 0;
    for (fake_device& each : w.devices) {
        if (each.unplugged) continue;
        list[i++] = &each;
        ++each.listed;
    }
    if (count != nullptr) *count = static_cast<int>(i);
    ++w.device_lists;
    return list;
}

void free_devices(ibv_context** list) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.enter("free_devices");
    if (w.device_lists-- == 0) w.broken("free_devices: no list is out");
    for (ibv_context** each = list; *each != nullptr; ++each) --device_of(*each).listed;
    w.close_unplugged();
    std::free(list);
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("query_device", context)) return failed_with(error);
    *attributes = device_of(context).options.limits;
    return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("query_port", context)) return failed_with(error);
    const auto& ports = device_of(context).options.ports;
    if (port == 0 || port > ports.size()) return failed_with(EINVAL);
    *attributes = ports[port - 1U].attributes;
    return 0;
}

int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid_entry* entry) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("query_gid", context)) return failed_with(error);
    const auto& ports = device_of(context).options.ports;
    if (port == 0 || port > ports.size()) return failed_with(EINVAL);
    const fake_port& at = ports[port - 1U];
    if (index < 0 || index >= at.attributes.gid_tbl_len) {
        w.broken("query_gid: index " + std::to_string(index) + " of a table of " +
                 std::to_string(at.attributes.gid_tbl_len));
        return failed_with(EINVAL);
    }
    for (const ibv_gid_entry& each : at.gids)
        if (static_cast<int>(each.gid_index) == index) {
            *entry = each;
            entry->port_num = port;
            return 0;
        }
    return failed_with(ENODATA); // an empty place [ibv_query_gid_ex(3)]
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("get_async_event", context)) {
        errno = error;
        return -1;
    }
    fake_device& device = device_of(context);
    if (device.queued.empty()) {
        if (device.events.blocks()) w.broken("get_async_event: nothing is there, and the descriptor blocks");
        errno = EAGAIN;
        return -1;
    }
    *event = device.queued.front();
    device.queued.pop_front();
    device.events.lower();
    ++w.unacknowledged;
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: ++static_cast<fake_cq*>(event->element.cq)->unacknowledged_async; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: ++static_cast<fake_srq*>(event->element.srq)->unacknowledged_async; break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: ++static_cast<fake_qp*>(event->element.qp)->unacknowledged_async; break;
    default: break;
    }
    return 0;
}

void ack_async_event(ibv_async_event* event) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.enter("ack_async_event");
    --w.unacknowledged;
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: --static_cast<fake_cq*>(event->element.cq)->unacknowledged_async; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: --static_cast<fake_srq*>(event->element.srq)->unacknowledged_async; break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: --static_cast<fake_qp*>(event->element.qp)->unacknowledged_async; break;
    default: break;
    }
}

int is_fork_initialized() {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.enter("is_fork_initialized");
    return IBV_FORK_UNNEEDED;
}

// ---- memory ----

ibv_pd* alloc_pd(ibv_context* context) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("alloc_pd", context)) {
        errno = error;
        return nullptr;
    }
    auto made = std::make_unique<fake_pd>();
    made->context = context;
    return w.pds.emplace_back(std::move(made)).get();
}

int dealloc_pd(ibv_pd* pd) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("dealloc_pd", pd->context)) return failed_with(error);
    fake_pd& mine = w.of(w.pds, pd);
    if (mine.users != 0) {
        w.broken("dealloc_pd: " + std::to_string(mine.users) + " objects use it");
        return failed_with(EBUSY);
    }
    w.drop(w.pds, mine);
    return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
    fake_world& w = the_world();
    std::unique_lock lock(w.mutex);
    w.wait_if_held(lock, "reg_mr", pd->context);
    int error = w.enter("reg_mr", pd->context);
    fake_pd& home = w.of(w.pds, pd);
    const fake_device& device = device_of(pd->context);
    constexpr int remote_writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (error == 0 && (access & remote_writes) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) error = EINVAL;
    if (error == 0 && (access & IBV_ACCESS_RELAXED_ORDERING) != 0 && !device.options.knows_relaxed_ordering)
        error = EINVAL;
    if (error == 0 && (bytes == 0 || bytes > device.options.limits.max_mr_size)) error = EINVAL;
    if (error != 0) {
        errno = error;
        return nullptr;
    }
    auto made = std::make_unique<fake_mr>();
    made->context = pd->context;
    made->pd = pd;
    made->addr = address;
    made->length = bytes;
    made->lkey = w.next_key;
    made->rkey = w.next_key + 1;
    made->access = access;
    w.next_key += 2;
    ++home.users;
    return w.mrs.emplace_back(std::move(made)).get();
}

int dereg_mr(ibv_mr* mr) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("dereg_mr", mr->context)) return failed_with(error);
    fake_mr& mine = w.of(w.mrs, mr);
    --w.of(w.pds, mine.pd).users;
    w.drop(w.mrs, mine);
    return 0;
}

} // namespace

void fill_device_calls(rdma::verbs& table) {
    table.get_devices = get_devices;
    table.free_devices = free_devices;
    table.query_device = query_device;
    table.query_port = query_port;
    table.query_gid = query_gid;
    table.get_async_event = get_async_event;
    table.ack_async_event = ack_async_event;
    table.is_fork_initialized = is_fork_initialized;
    table.alloc_pd = alloc_pd;
    table.dealloc_pd = dealloc_pd;
    table.reg_mr = reg_mr;
    table.dereg_mr = dereg_mr;
}

fake_world& the_world() noexcept {
    if (current == nullptr) {
        std::fputs("fake verbs: called without a world\n", stderr);
        std::abort();
    }
    return *current;
}

void not_alive() noexcept {
    std::fputs("fake verbs: a call names an object that is not alive\n", stderr);
    std::abort();
}

fake_fd::fake_fd() : fd_(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}
fake_fd::~fake_fd() { close(fd_); }
void fake_fd::raise() noexcept {
    const std::uint64_t one = 1;
    if (write(fd_, &one, sizeof one) != sizeof one) std::abort();
}
void fake_fd::lower() noexcept {
    std::uint64_t one = 0;
    if (read(fd_, &one, sizeof one) != sizeof one) std::abort();
}
bool fake_fd::blocks() const noexcept { return (fcntl(fd_, F_GETFL) & O_NONBLOCK) == 0; }

int fake_world::enter(std::string_view call) {
    ++calls[std::string(call)];
    ++calls_by_thread[{std::string(call), std::this_thread::get_id()}];
    int error = 0;
    for (failure& each : failures) {
        if (!each.call.empty() && each.call != call) continue;
        if (each.nth == 0 || --each.nth != 0) continue;
        error = each.error;
        failed = call;
    }
    return error;
}

int fake_world::enter(std::string_view call, ibv_context* context) {
    if (device_of(context).closed) broken(std::string(call) + ": librdmacm has closed the context");
    return enter(call);
}

void fake_world::wait_if_held(std::unique_lock<std::mutex>& lock, std::string_view call, const ibv_context* context) {
    struct counted { // also when the thread is canceled in here
        explicit counted(std::size_t& of) : count(of) { ++count; }
        ~counted() { --count; }
        std::size_t& count;
    };
    const counted here(waiting);
    while (held_on == context && held_call == call) released.wait(lock);
}

/// [librdmacm's cma.c: sync_devices_list, ucma_put_device, rdma_free_devices]
void fake_world::close_unplugged() {
    for (fake_device& each : devices) {
        const auto bound = std::ranges::count_if(ids, [&](const auto& id) { return id->verbs == &each; });
        if (each.unplugged && bound == 0 && each.listed == 0) each.closed = true;
    }
}

void fake_world::async(ibv_context* context, ibv_async_event event) {
    fake_device& device = device_of(context);
    device.queued.push_back(event);
    device.events.raise();
}

fake_port::fake_port() {
    attributes.state = IBV_PORT_ACTIVE;
    attributes.max_mtu = IBV_MTU_4096;
    attributes.active_mtu = IBV_MTU_1024;
    attributes.gid_tbl_len = 16;
    attributes.max_msg_sz = 0x800000;
    attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    attributes.phys_state = 5;
    ibv_gid_entry entry{};
    entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
    entry.gid.raw[12] = 10;
    entry.gid.raw[15] = 1;
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = 1;
    gids.push_back(entry);
}

// As rxe_param.h of Linux 6.1 has them, a few of them smaller so that they can be reached.
fake_device_options::fake_device_options() {
    limits.max_mr_size = ~std::uint64_t{0};
    limits.page_size_cap = 0xfffff000;
    limits.vendor_id = 0xffffff;
    limits.max_qp = 1024;
    limits.max_qp_wr = 16384;
    limits.max_sge = 32;
    limits.max_sge_rd = 32;
    limits.max_cq = 1024;
    limits.max_cqe = 32767;
    limits.max_mr = 4096;
    limits.max_pd = 1024;
    limits.max_qp_rd_atom = 128;
    limits.max_res_rd_atom = 4096;
    limits.max_qp_init_rd_atom = 128;
    limits.atomic_cap = IBV_ATOMIC_HCA;
    limits.max_srq = 1024;
    limits.max_srq_wr = 16384;
    limits.max_srq_sge = 27;
    limits.phys_port_cnt = 1;
}

fake_device_options soft_iwarp() {
    fake_device_options options;
    options.node = IBV_NODE_RNIC;
    options.transport = IBV_TRANSPORT_IWARP;
    options.limits.vendor_id = 0x626d74;
    options.limits.atomic_cap = IBV_ATOMIC_NONE;
    options.pads_private_data = false;
    return options;
}

fake_verbs::fake_verbs() : world_(std::make_unique<fake_world>()) {
    if (current != nullptr) std::abort(); // one at a time
    current = world_.get();
    static rdma::verbs table;
    table = {};
    table.root = world_->root.path().c_str();
    fill_device_calls(table);
    fill_queue_calls(table);
    fill_cm_calls(table);
    rdma::use_verbs(&table);
}

fake_verbs::~fake_verbs() {
    rdma::use_verbs(nullptr);
    for (const std::string& each : world_->violations) UNSCOPED_INFO(each);
    CHECK(world_->violations.empty());
    if (!world_->leaks_forgiven) {
        const fake_counts now = alive();
        UNSCOPED_INFO("lists " << now.device_lists << ", pds " << now.pds << ", mrs " << now.mrs << ", channels "
                               << now.channels << ", cqs " << now.cqs << ", srqs " << now.srqs << ", qps " << now.qps
                               << ", event channels " << now.event_channels << ", ids " << now.ids
                               << ", unacknowledged " << now.unacknowledged);
        CHECK(now.all() == 0);
    }
    current = nullptr;
}

/// As sysfs and /dev show it.
static void describe(const temporary_directory& root, const fake_device& device) {
    const auto write = [&root](const std::string& file, const std::string& text) {
        const std::filesystem::path at = root / file;
        std::filesystem::create_directories(at.parent_path());
        std::ofstream(at) << text << '\n';
    };
    for (std::size_t i = 0; i < device.options.ports.size(); ++i) {
        const bool active = device.options.ports[i].attributes.state == IBV_PORT_ACTIVE;
        write("sys/class/infiniband/" + device.options.name + "/ports/" + std::to_string(i + 1) + "/state",
              active ? "4: ACTIVE" : "1: DOWN");
    }
    write("sys/class/infiniband_verbs/" + device.options.name + "/ibdev", device.options.name);
    write("dev/infiniband/" + device.options.name, "");
    write("dev/infiniband/rdma_cm", "");
}

ibv_context* fake_verbs::add_device(const fake_device_options& options) {
    const std::lock_guard lock(world_->mutex);
    fake_device& made = world_->devices.emplace_back();
    made.options = options;
    if (options.name.empty()) made.options.name = "fake" + std::to_string(world_->devices.size() - 1);
    made.options.limits.phys_port_cnt = static_cast<std::uint8_t>(options.ports.size());
    std::snprintf(made.about.name, sizeof made.about.name, "%s", made.options.name.c_str());
    made.about.node_type = options.node;
    made.about.transport_type = options.transport;
    made.device = &made.about;
    made.async_fd = made.events.get();
    made.num_comp_vectors = 1;
    if (world_->route == nullptr) world_->route = &made;
    describe(world_->root, made);
    return &made;
}

void fake_verbs::unplug(ibv_context* context) {
    const std::lock_guard lock(world_->mutex);
    device_of(context).unplugged = true;
    world_->close_unplugged();
}

void fake_verbs::fail(std::string_view call, std::uint64_t nth, int error) {
    const std::lock_guard lock(world_->mutex);
    world_->failures.push_back({std::string(call), nth, error});
}
void fake_verbs::fail_any(std::uint64_t nth, int error) { fail({}, nth, error); }
std::string fake_verbs::failed() const {
    const std::lock_guard lock(world_->mutex);
    return world_->failed;
}
void fake_verbs::fail_no_more() {
    const std::lock_guard lock(world_->mutex);
    world_->failures.clear();
    world_->failed.clear();
}

std::uint64_t fake_verbs::calls(std::string_view call) const {
    const std::lock_guard lock(world_->mutex);
    std::uint64_t all = 0;
    for (const auto& [name, count] : world_->calls)
        if (call.empty() || name == call) all += count;
    return all;
}

void fake_verbs::hold_calls(std::string_view call, ibv_context* context) {
    const std::lock_guard lock(world_->mutex);
    world_->held_call = call;
    world_->held_on = context;
}
std::size_t fake_verbs::waiting_calls() const {
    const std::lock_guard lock(world_->mutex);
    return world_->waiting;
}
void fake_verbs::release_calls() {
    const std::lock_guard lock(world_->mutex);
    world_->held_on = nullptr;
    world_->released.notify_all();
}

std::uint64_t fake_verbs::calls_here(std::string_view call) const {
    const std::lock_guard lock(world_->mutex);
    const auto found = world_->calls_by_thread.find({std::string(call), std::this_thread::get_id()});
    return found == world_->calls_by_thread.end() ? 0 : found->second;
}

fake_counts fake_verbs::alive() const {
    const std::lock_guard lock(world_->mutex);
    const fake_world& w = *world_;
    return {.device_lists = w.device_lists,
            .pds = w.pds.size(),
            .mrs = w.mrs.size(),
            .channels = w.channels.size(),
            .cqs = w.cqs.size(),
            .srqs = w.srqs.size(),
            .qps = w.qps.size(),
            .event_channels = w.event_channels.size(),
            .ids = w.ids.size(),
            .unacknowledged = w.unacknowledged};
}

std::vector<std::string> fake_verbs::take_violations() {
    const std::lock_guard lock(world_->mutex);
    return std::exchange(world_->violations, {});
}
void fake_verbs::forgive_leaks() { world_->leaks_forgiven = true; }

void fake_verbs::port_state(ibv_context* context, ibv_port_state state, std::uint8_t port) {
    const std::lock_guard lock(world_->mutex);
    device_of(context).options.ports.at(port - 1U).attributes.state = state;
}
void fake_verbs::async_event(ibv_context* context, ibv_event_type what, std::uint8_t port) {
    const std::lock_guard lock(world_->mutex);
    ibv_async_event event{};
    event.event_type = what;
    event.element.port_num = port;
    world_->async(context, event);
}
void fake_verbs::async_event(ibv_qp* qp, ibv_event_type what) {
    const std::lock_guard lock(world_->mutex);
    ibv_async_event event{};
    event.event_type = what;
    event.element.qp = qp;
    world_->async(qp->context, event);
}
void fake_verbs::async_event(ibv_cq* cq, ibv_event_type what) {
    const std::lock_guard lock(world_->mutex);
    ibv_async_event event{};
    event.event_type = what;
    event.element.cq = cq;
    world_->async(cq->context, event);
}
void fake_verbs::async_event(ibv_srq* srq, ibv_event_type what) {
    const std::lock_guard lock(world_->mutex);
    ibv_async_event event{};
    event.event_type = what;
    event.element.srq = srq;
    world_->async(srq->context, event);
}

void fake_verbs::remove_gid(ibv_context* context, std::uint8_t port, std::uint32_t index) {
    {
        const std::lock_guard lock(world_->mutex);
        auto& gids = device_of(context).options.ports.at(port - 1U).gids;
        std::erase_if(gids, [&](const ibv_gid_entry& each) { return each.gid_index == index; });
    }
    async_event(context, IBV_EVENT_GID_CHANGE, port);
}

void fake_verbs::remove_addresses() {
    const std::lock_guard lock(world_->mutex);
    world_->has_addresses = false;
}

std::vector<fake_verbs::registered> fake_verbs::registrations(ibv_context* context) const {
    const std::lock_guard lock(world_->mutex);
    std::vector<registered> all;
    for (const auto& each : world_->mrs)
        if (each->context == context) all.push_back({each.get(), each->access});
    return all;
}

} // namespace sluice::testing
