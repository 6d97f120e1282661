#include "tests/rdma/fake_verbs.hpp"
#include "tests/rdma/fake_world.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <utility>

namespace sluice::testing {

namespace {

// What the transport carries [rdma_connect(3), rdma_accept(3), rdma_reject(3)].
constexpr std::size_t request_bytes = 56;
constexpr std::size_t accept_bytes = 196;
constexpr std::size_t reject_bytes = 148;
// Reasons of InfiniBand's connection manager: nobody listens; the consumer refused.
constexpr int invalid_service_id = 8;
constexpr int consumer_defined = 28;

/// What a function of librdmacm gives back.
int failed_with(int error) noexcept {
    errno = error;
    return -1;
}

const ibv_port_attr& port_of(const fake_id& id) {
    return static_cast<const fake_device&>(*id.verbs).options.ports.at(id.port_num - 1U).attributes;
}
std::uint16_t port_of(const sockaddr& address) noexcept {
    if (address.sa_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}
void set_port(sockaddr& address, std::uint16_t port) noexcept {
    if (address.sa_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
    else reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
}
std::size_t length_of(const sockaddr& address) noexcept {
    return address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::vector<std::byte> bytes_of(const void* data, std::size_t length) {
    const auto* from = static_cast<const std::byte*>(data);
    return data == nullptr ? std::vector<std::byte>{} : std::vector<std::byte>(from, from + length);
}

/// At most so many bytes of private data: over iWARP they travel in another message [RFC 5044, 7.1].
std::size_t private_data_max(const fake_id& id, std::size_t over_infiniband) {
    const bool iwarp =
        id.verbs != nullptr && static_cast<const fake_device&>(*id.verbs).options.transport == IBV_TRANSPORT_IWARP;
    return iwarp ? 512 : over_infiniband;
}

std::size_t padding(fake_world& w, std::size_t length) {
    return w.route != nullptr && static_cast<const fake_device&>(*w.route).options.pads_private_data ? length : 0;
}

/// As the kernel has it on RoCE: the address that the id leaves from [rdma_ip2gid in Linux's rdma/ib_addr.h].
void set_gid(fake_id& id) {
    auto& raw = id.route.addr.addr.ibaddr.sgid.raw;
    std::memset(raw, 0, sizeof raw);
    const sockaddr& from = id.route.addr.src_addr;
    if (from.sa_family == AF_INET6) {
        std::memcpy(raw, &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, sizeof raw);
    } else {
        raw[10] = raw[11] = 0xff;
        std::memcpy(raw + 12, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, sizeof(in_addr));
    }
}

rdma_event_channel* create_event_channel() {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("create_event_channel")) {
        errno = error;
        return nullptr;
    }
    auto made = std::make_unique<fake_event_channel>();
    made->fd = made->events.get();
    return w.event_channels.emplace_back(std::move(made)).get();
}

void destroy_event_channel(rdma_event_channel* channel) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.enter("destroy_event_channel");
    fake_event_channel& mine = w.of(w.event_channels, channel);
    const auto users = std::ranges::count_if(w.ids, [&](const auto& each) { return each->channel == channel; });
    if (users != 0) w.broken("destroy_event_channel: " + std::to_string(users) + " ids use it");
    for (rdma_cm_event* each : mine.queued) delete static_cast<fake_event*>(each);
    w.drop(w.event_channels, mine);
}

int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("get_cm_event")) return failed_with(error);
    fake_event_channel& mine = w.of(w.event_channels, channel);
    if (mine.queued.empty()) {
        if (mine.events.blocks()) w.broken("get_cm_event: nothing is there, and the descriptor blocks");
        return failed_with(EAGAIN);
    }
    *event = mine.queued.front();
    mine.queued.pop_front();
    mine.events.lower();
    fake_id& id = w.of(w.ids, (*event)->id);
    ++id.unacknowledged;
    ++w.unacknowledged;
    const auto what = (*event)->event;
    if (id.loses_queue_pair && (what == RDMA_CM_EVENT_REJECTED || what == RDMA_CM_EVENT_ESTABLISHED))
        w.broken("get_cm_event: of an id whose queue pair another thread destroys; it would be used");
    if ((*event)->event == RDMA_CM_EVENT_ADDR_RESOLVED && (*event)->status == 0 && id.verbs == nullptr) {
        id.verbs = id.leads_to != nullptr ? id.leads_to : w.route;
        id.port_num = id.leads_to_port;
        set_gid(id);
    }
    // Where an acceptance has come, the queue pair is made ready in here; -1 where that fails, and why in errno
    // [rdma_seterrno in librdmacm's rdma_cma.h].
    if ((*event)->event == RDMA_CM_EVENT_ESTABLISHED && id.connects) {
        if (const int error = w.enter("make_ready")) {
            (*event)->event = RDMA_CM_EVENT_CONNECT_ERROR;
            (*event)->status = failed_with(error);
        }
    }
    return 0;
}

int ack_cm_event(rdma_cm_event* event) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("ack_cm_event")) return failed_with(error);
    --w.of(w.ids, event->id).unacknowledged;
    --w.unacknowledged;
    delete static_cast<fake_event*>(event);
    return 0;
}

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("create_id")) return failed_with(error);
    *id = &w.make_id(channel, context, space);
    return 0;
}

int destroy_id(rdma_cm_id* id) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("destroy_id")) return failed_with(error);
    fake_id& mine = w.of(w.ids, id);
    if (mine.qp != nullptr) w.broken("destroy_id: its queue pair is still there");
    if (mine.unacknowledged != 0)
        w.broken("destroy_id: " + std::to_string(mine.unacknowledged) +
                 " events are not acknowledged; it would wait for ever");
    auto& channel = w.of(w.event_channels, mine.channel);
    std::erase_if(channel.queued, [&](rdma_cm_event* each) { // the kernel drops what nobody got
        if (each->id != id && each->listen_id != id) return false;
        channel.events.lower();
        if (each->id != id) w.drop(w.ids, w.of(w.ids, each->id)); // a request that nobody saw
        delete static_cast<fake_event*>(each);
        return true;
    });
    // The connection that it had is ended [cm_destroy_id in Linux's drivers/infiniband/core/cm.c].
    if (mine.established && mine.peer != nullptr && std::exchange(mine.peer->established, false))
        w.event(*mine.peer, RDMA_CM_EVENT_DISCONNECTED, 0, {}, 0);
    for (auto& each : w.ids) {
        if (each->peer == &mine) each->peer = nullptr;
        if (each->from == &mine) each->from = nullptr;
    }
    w.drop(w.ids, mine);
    w.close_unplugged();
    return 0;
}

int set_option(rdma_cm_id* id, int, int, void*, std::size_t) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.of(w.ids, id);
    const int error = w.enter("set_option");
    return error == 0 ? 0 : failed_with(error);
}

int bind_addr(rdma_cm_id* id, sockaddr* address) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("bind_addr")) return failed_with(error);
    fake_id& mine = w.of(w.ids, id);
    std::memcpy(&mine.route.addr.src_storage, address, length_of(*address));
    if (port_of(*address) == 0) set_port(mine.route.addr.src_addr, w.next_port++);
    for (const auto& each : w.ids)
        if (each->listens && port_of(each->route.addr.src_addr) == port_of(mine.route.addr.src_addr))
            return failed_with(EADDRINUSE);
    if (const auto* const owner = w.route_of(*address); owner != nullptr) {
        if (owner->context == nullptr) return failed_with(EADDRNOTAVAIL);
        mine.verbs = owner->context;
        mine.port_num = owner->port;
    }
    return 0;
}

int resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int milliseconds) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    w.resolve_times.push_back(milliseconds);
    if (const int error = w.enter("resolve_addr")) return failed_with(error);
    fake_id& mine = w.of(w.ids, id);
    std::memcpy(&mine.route.addr.dst_storage, destination, length_of(*destination));
    const sockaddr* const from = source == nullptr ? destination : source; // everything is one machine
    if (source != nullptr && port_of(*source) != 0)
        for (const auto& each : w.ids)
            if (port_of(each->route.addr.src_addr) == port_of(*source)) return failed_with(EADDRINUSE);
    if (mine.route.addr.src_addr.sa_family == 0) {
        std::memcpy(&mine.route.addr.src_storage, from, length_of(*from));
        if (source == nullptr || port_of(*source) == 0) set_port(mine.route.addr.src_addr, w.next_port++);
    }
    if (w.is_held("resolve_addr")) return 0;
    const auto* const way = w.route_of(*from);
    if (way != nullptr) {
        mine.leads_to = way->context;
        mine.leads_to_port = way->port;
    }
    if (way == nullptr ? w.route == nullptr : way->context == nullptr) w.event(mine, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, {}, 0);
    else w.event(mine, RDMA_CM_EVENT_ADDR_RESOLVED, 0, {}, 0);
    return 0;
}

int resolve_route(rdma_cm_id* id, int) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("resolve_route")) return failed_with(error);
    if (!w.is_held("resolve_route")) w.event(w.of(w.ids, id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0, {}, 0);
    return 0;
}

int listen(rdma_cm_id* id, int) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("listen")) return failed_with(error);
    w.of(w.ids, id).listens = true;
    return 0;
}

/// The parameters as the other end sees them: what one may have outstanding the other must respond to.
rdma_conn_param seen_by_peer(rdma_conn_param with) {
    std::swap(with.responder_resources, with.initiator_depth);
    return with;
}

fake_verbs::connected noted(rdma_cm_id* id, const rdma_conn_param* with) {
    fake_verbs::connected one{id, with == nullptr ? rdma_conn_param{} : *with, {}};
    one.private_data = bytes_of(one.parameters.private_data, one.parameters.private_data_len);
    one.parameters.private_data = nullptr;
    return one;
}

int connect(rdma_cm_id* id, rdma_conn_param* parameters) {
    fake_world& w = the_world();
    std::unique_lock lock(w.mutex);
    w.wait_if_held(lock, "connect", id->verbs);
    int error = w.enter("connect");
    fake_id& mine = w.of(w.ids, id);
    auto call = noted(id, parameters);
    if (error == 0 && call.private_data.size() > private_data_max(mine, request_bytes)) error = EINVAL;
    if (error != 0) return failed_with(error);
    w.connects.push_back(call);
    mine.connects = true;
    if (w.is_held("connect")) return 0;
    for (const auto& each : w.ids) {
        if (!each->listens || port_of(each->route.addr.src_addr) != port_of(mine.route.addr.dst_addr)) continue;
        fake_id& request = w.make_id(each->channel, each->context, mine.ps);
        request.verbs = w.arrival == nullptr ? w.route : w.arrival;
        request.port_num = 1;
        request.from = &mine;
        request.path_mtu = mine.path_mtu = port_of(mine).active_mtu; // in the request [IB 12.7.31]
        request.route.addr.src_storage = mine.route.addr.dst_storage;
        request.route.addr.dst_storage = mine.route.addr.src_storage;
        set_gid(request);
        w.event(request, RDMA_CM_EVENT_CONNECT_REQUEST, 0, call.private_data, padding(w, request_bytes),
                seen_by_peer(call.parameters), each.get());
        return 0;
    }
    w.event(mine, RDMA_CM_EVENT_REJECTED, invalid_service_id, {}, 0);
    return 0;
}

/// What librdmacm does with a queue pair that it knows: no path but the connection manager's.
void make_ready(const fake_id& id, fake_qp& qp) {
    qp.state = IBV_QPS_RTS;
    qp.path_mtu = id.path_mtu;
}

int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("init_qp_attr")) return failed_with(error);
    const fake_id& mine = w.of(w.ids, id);
    *mask = IBV_QP_STATE;
    if (attributes->qp_state == IBV_QPS_RTR) {
        *mask |= IBV_QP_PATH_MTU;
        attributes->path_mtu = mine.path_mtu;
    }
    return 0;
}

int accept(rdma_cm_id* id, rdma_conn_param* parameters) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    int error = w.enter("accept");
    fake_id& mine = w.of(w.ids, id);
    fake_qp* own = nullptr; // of the id, or by its number where the id has none [rdma_accept(3)]
    for (const auto& each : w.qps)
        if (mine.qp != nullptr ? each.get() == mine.qp : each->qp_num == parameters->qp_num) own = each.get();
    auto call = noted(id, parameters);
    if (error == 0 && call.private_data.size() > private_data_max(mine, accept_bytes)) error = EINVAL;
    if (error == 0 && (own == nullptr || (mine.qp == nullptr && own->state != IBV_QPS_RTS))) error = EINVAL;
    if (error != 0) return failed_with(error);
    w.accepts.push_back(call);
    if (mine.qp != nullptr) make_ready(mine, *own);
    if (w.is_held("accept")) return 0;
    if (mine.from != nullptr && mine.from->qp != nullptr) {
        mine.peer = mine.from;
        mine.from->peer = &mine;
        auto& there = w.of(w.qps, mine.from->qp);
        own->peer = &there;
        there.peer = own;
        make_ready(*mine.from, there);
        mine.from->established = true;
        w.event(*mine.from, RDMA_CM_EVENT_ESTABLISHED, 0, call.private_data, padding(w, accept_bytes),
                seen_by_peer(call.parameters));
    }
    mine.established = true;
    w.event(mine, RDMA_CM_EVENT_ESTABLISHED, 0, {}, 0);
    return 0;
}

int reject(rdma_cm_id* id, const void* data, std::uint8_t bytes) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    int error = w.enter("reject");
    fake_id& mine = w.of(w.ids, id);
    if (error == 0 && bytes > reject_bytes) error = EINVAL;
    if (error != 0) return failed_with(error);
    w.rejects.push_back({id, {}, bytes_of(data, bytes)});
    if (mine.from != nullptr && !w.is_held("reject"))
        w.event(*mine.from, RDMA_CM_EVENT_REJECTED, consumer_defined, w.rejects.back().private_data,
                padding(w, reject_bytes));
    return 0;
}

int disconnect(rdma_cm_id* id) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    if (const int error = w.enter("disconnect")) return failed_with(error);
    fake_id& mine = w.of(w.ids, id);
    if (mine.qp != nullptr) w.fail_qp(w.of(w.qps, mine.qp));
    if (w.is_held("disconnect") || !std::exchange(mine.established, false)) return 0;
    w.event(mine, RDMA_CM_EVENT_DISCONNECTED, 0, {}, 0);
    if (mine.peer != nullptr && std::exchange(mine.peer->established, false))
        w.event(*mine.peer, RDMA_CM_EVENT_DISCONNECTED, 0, {}, 0);
    return 0;
}

int create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attributes) {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    int error = w.enter("create_qp", pd->context);
    fake_id& mine = w.of(w.ids, id);
    if (error == 0 && (mine.qp != nullptr || mine.verbs == nullptr || pd->context != mine.verbs)) error = EINVAL;
    if (error != 0) return failed_with(error);
    const auto& options = static_cast<const fake_device&>(*mine.verbs).options;
    const ibv_qp_cap& cap = attributes->cap;
    const auto wr_max = static_cast<unsigned>(options.limits.max_qp_wr);
    const auto sge_max = static_cast<unsigned>(options.limits.max_sge);
    if (cap.max_send_wr > wr_max || cap.max_recv_wr > wr_max || cap.max_send_sge > sge_max ||
        cap.max_inline_data > options.max_inline_bytes)
        return failed_with(EINVAL);
    if (w.qps.size() >= static_cast<std::size_t>(options.limits.max_qp)) return failed_with(ENOMEM);
    if (attributes->send_cq == nullptr || attributes->recv_cq == nullptr) {
        w.broken("create_qp: without completion queues librdmacm would make its own");
        return failed_with(EINVAL);
    }
    auto made = std::make_unique<fake_qp>();
    made->context = mine.verbs;
    made->qp_context = attributes->qp_context;
    made->pd = pd;
    made->send_cq = attributes->send_cq;
    made->recv_cq = attributes->recv_cq;
    made->srq = attributes->srq;
    made->qp_num = w.next_qp_number++;
    made->state = IBV_QPS_INIT;
    made->qp_type = attributes->qp_type;
    made->init = *attributes;
    ++w.of(w.pds, pd).users;
    ++w.of(w.cqs, attributes->send_cq).users;
    ++w.of(w.cqs, attributes->recv_cq).users;
    if (attributes->srq != nullptr) ++w.of(w.srqs, attributes->srq).users;
    mine.qp = w.qps.emplace_back(std::move(made)).get();
    return 0;
}

void destroy_qp(rdma_cm_id* id) {
    fake_world& w = the_world();
    std::unique_lock lock(w.mutex);
    w.enter("destroy_qp", id->verbs);
    fake_id& owner = w.of(w.ids, id);
    if (owner.qp == nullptr) return w.broken("destroy_qp: the id has none");
    owner.loses_queue_pair = true;
    w.wait_if_held(lock, "destroy_qp", id->verbs);
    owner.loses_queue_pair = false;
    fake_qp& mine = w.of(w.qps, std::exchange(owner.qp, nullptr));
    if (mine.unacknowledged_async != 0) w.broken("destroy_qp: events are not acknowledged; verbs would wait for ever");
    auto& device = static_cast<fake_device&>(*mine.context);
    std::erase_if(device.queued, [&](const ibv_async_event& each) {
        const bool gone = each.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && each.element.qp == &mine;
        if (gone) device.events.lower();
        return gone;
    });
    for (ibv_cq* cq : {mine.send_cq, mine.recv_cq}) {
        fake_cq& queue = w.of(w.cqs, cq);
        --queue.users;
        std::erase_if(queue.entries, [&](const fake_cq::entry& each) { return each.completion.qp_num == mine.qp_num; });
    }
    if (mine.srq != nullptr) --w.of(w.srqs, mine.srq).users;
    --w.of(w.pds, mine.pd).users;
    if (mine.peer != nullptr) {
        mine.peer->peer = nullptr;
        mine.peer->peer_lost = true;
    }
    w.drop(w.qps, mine);
}

bool is_of_this_host(const sockaddr_storage&) noexcept {
    fake_world& w = the_world();
    const std::lock_guard lock(w.mutex);
    return w.has_addresses;
}

} // namespace

void fill_cm_calls(rdma::verbs& table) {
    table.create_event_channel = create_event_channel;
    table.destroy_event_channel = destroy_event_channel;
    table.get_cm_event = get_cm_event;
    table.ack_cm_event = ack_cm_event;
    table.create_id = create_id;
    table.destroy_id = destroy_id;
    table.set_option = set_option;
    table.bind_addr = bind_addr;
    table.resolve_addr = resolve_addr;
    table.resolve_route = resolve_route;
    table.listen = listen;
    table.connect = connect;
    table.accept = accept;
    table.reject = reject;
    table.disconnect = disconnect;
    table.init_qp_attr = init_qp_attr;
    table.create_qp = create_qp;
    table.destroy_qp = destroy_qp;
    table.is_of_this_host = is_of_this_host;
}

const fake_world::from* fake_world::route_of(const sockaddr& source) const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* const address = source.sa_family == AF_INET
                                    ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(source).sin_addr)
                                    : &reinterpret_cast<const sockaddr_in6&>(source).sin6_addr;
    if (inet_ntop(source.sa_family, address, text.data(), text.size()) == nullptr) return nullptr;
    for (const from& each : routes_from)
        if (each.address == text.data()) return &each;
    return nullptr;
}

fake_id& fake_world::make_id(rdma_event_channel* channel, void* context, rdma_port_space space) {
    auto made = std::make_unique<fake_id>();
    made->channel = channel;
    made->context = context;
    made->ps = space;
    return *ids.emplace_back(std::move(made));
}

void fake_world::event(fake_id& id, rdma_cm_event_type what, int status, std::span<const std::byte> data,
                       std::size_t padded, const rdma_conn_param& with, fake_id* listener) {
    auto made = std::make_unique<fake_event>();
    made->id = &id;
    made->listen_id = listener;
    made->event = what;
    made->status = status;
    made->data.assign(data.begin(), data.end());
    if (made->data.size() < padded) made->data.resize(padded);
    made->param.conn = with;
    made->param.conn.private_data = made->data.empty() ? nullptr : made->data.data();
    made->param.conn.private_data_len = static_cast<std::uint8_t>(made->data.size());
    auto& channel = of(event_channels, id.channel);
    channel.queued.push_back(made.release());
    channel.events.raise();
}

// ---- what the test says ----

void fake_verbs::hold(std::string_view call) {
    const std::lock_guard lock(world_->mutex);
    world_->held.emplace(call);
}
void fake_verbs::release(std::string_view call) {
    const std::lock_guard lock(world_->mutex);
    world_->held.erase(std::string(call));
}
void fake_verbs::route_to(ibv_context* context) {
    const std::lock_guard lock(world_->mutex);
    world_->route = context;
}
void fake_verbs::arrive_at(ibv_context* context) {
    const std::lock_guard lock(world_->mutex);
    world_->arrival = context;
}
void fake_verbs::route_from(std::string_view address, ibv_context* context, std::uint8_t port) {
    const std::lock_guard lock(world_->mutex);
    world_->routes_from.push_back({std::string(address), context, port});
}
void fake_verbs::cm_event(rdma_cm_id* id, rdma_cm_event_type what, int status, std::span<const std::byte> private_data,
                          std::uint8_t responder_resources, std::uint8_t initiator_depth) {
    const std::lock_guard lock(world_->mutex);
    rdma_conn_param with{};
    with.responder_resources = responder_resources;
    with.initiator_depth = initiator_depth;
    world_->event(world_->of(world_->ids, id), what, status, private_data, 0, with);
}
void fake_verbs::connect_request(rdma_cm_id* listener, std::span<const std::byte> private_data,
                                 std::uint8_t responder_resources, std::uint8_t initiator_depth) {
    const std::lock_guard lock(world_->mutex);
    fake_id& home = world_->of(world_->ids, listener);
    fake_id& request = world_->make_id(home.channel, home.context, home.ps);
    request.verbs = world_->route;
    request.port_num = 1;
    request.route.addr.src_storage = request.route.addr.dst_storage = home.route.addr.src_storage;
    rdma_conn_param with{};
    with.responder_resources = responder_resources;
    with.initiator_depth = initiator_depth;
    world_->event(request, RDMA_CM_EVENT_CONNECT_REQUEST, 0, private_data, padding(*world_, request_bytes), with,
                  &home);
}
std::vector<int> fake_verbs::resolve_times() const {
    const std::lock_guard lock(world_->mutex);
    return world_->resolve_times;
}
std::vector<fake_verbs::connected> fake_verbs::connects() const {
    const std::lock_guard lock(world_->mutex);
    return world_->connects;
}
std::vector<fake_verbs::connected> fake_verbs::accepts() const {
    const std::lock_guard lock(world_->mutex);
    return world_->accepts;
}
std::vector<fake_verbs::connected> fake_verbs::rejects() const {
    const std::lock_guard lock(world_->mutex);
    return world_->rejects;
}
std::vector<rdma_cm_id*> fake_verbs::ids() const {
    const std::lock_guard lock(world_->mutex);
    std::vector<rdma_cm_id*> all;
    for (const auto& each : world_->ids) all.push_back(each.get());
    return all;
}
std::vector<rdma_cm_id*> fake_verbs::listening() const {
    const std::lock_guard lock(world_->mutex);
    std::vector<rdma_cm_id*> all;
    for (const auto& each : world_->ids)
        if (each->listens) all.push_back(each.get());
    return all;
}

} // namespace sluice::testing
