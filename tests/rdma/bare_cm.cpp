#include "tests/rdma/bare_cm.hpp"

#include "tests/rdma/bare_peer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

namespace sluice::bare {

void throw_errno(const char* call, int number) {
    throw failure(std::string("bare peer: ") + call + ": " + std::strerror(number));
}

void throw_errno(const char* call) { throw_errno(call, errno); }

void check(int rc, const char* call) {
    if (rc != 0) throw_errno(call);
}

void make_non_blocking(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw_errno("fcntl");
}

endpoint::endpoint(const std::string& address) {
    const std::string scheme = "rdma://";
    const auto colon = address.rfind(':');
    if (!address.starts_with(scheme) || colon == std::string::npos || colon < scheme.size())
        throw failure("bare peer: \"" + address + "\" is not rdma://HOST:PORT");
    host_ = address.substr(scheme.size(), colon - scheme.size());
    const std::string numeric = host_.starts_with('[') ? host_.substr(1, host_.size() - 2) : host_;
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int rc = getaddrinfo(numeric.c_str(), address.c_str() + colon + 1, &hints, &found); rc != 0)
        throw failure("bare peer: \"" + address + "\": " + gai_strerror(rc));
    std::memcpy(&storage_, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
}

// ---- events ----

std::string cm_event::text() const { return std::string(rdma_event_str(type)) + ", status " + std::to_string(status); }

rdma_event_channel* make_channel() {
    rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == nullptr) throw_errno("rdma_create_event_channel");
    make_non_blocking(channel->fd);
    return channel;
}

std::optional<cm_event> event_if_any(rdma_event_channel* channel) {
    rdma_cm_event* raw = nullptr;
    if (rdma_get_cm_event(channel, &raw) != 0) {
        if (errno == EAGAIN || errno == EINTR) return std::nullopt;
        throw_errno("rdma_get_cm_event");
    }
    cm_event e{.type = raw->event, .status = raw->status, .id = raw->id};
    const bool tells = raw->event == RDMA_CM_EVENT_CONNECT_REQUEST || raw->event == RDMA_CM_EVENT_ESTABLISHED ||
                       raw->event == RDMA_CM_EVENT_REJECTED;
    if (tells) {
        const auto* data = static_cast<const std::byte*>(raw->param.conn.private_data);
        if (data != nullptr) e.private_data.assign(data, data + raw->param.conn.private_data_len);
        e.responder_resources = raw->param.conn.responder_resources;
        e.initiator_depth = raw->param.conn.initiator_depth;
    }
    rdma_ack_cm_event(raw);
    return e;
}

cm_event next_event(rdma_event_channel* channel) {
    for (;;) {
        if (auto e = event_if_any(channel)) return std::move(*e);
        pollfd watched{.fd = channel->fd, .events = POLLIN, .revents = 0};
        const int ready = ::poll(&watched, 1, wait_limit_ms);
        if (ready < 0 && errno != EINTR) throw_errno("poll");
        if (ready == 0) throw failure("bare peer: no event in " + std::to_string(wait_limit_ms) + " ms");
    }
}

cm_event expect_event(rdma_event_channel* channel, rdma_cm_event_type wanted) {
    cm_event e = next_event(channel);
    if (e.type != wanted)
        throw failure("bare peer: expected " + std::string(rdma_event_str(wanted)) + ", got " + e.text());
    return e;
}

rdma_conn_param parameters(ibv_context* context, std::span<const std::byte> private_data) {
    ibv_device_attr limits{};
    if (const int rc = ibv_query_device(context, &limits); rc != 0) throw_errno("ibv_query_device", rc);
    rdma_conn_param with{};
    with.private_data = private_data.data();
    with.private_data_len = static_cast<std::uint8_t>(private_data.size());
    with.responder_resources = static_cast<std::uint8_t>(std::clamp(limits.max_qp_rd_atom, 0, 16));
    with.initiator_depth = static_cast<std::uint8_t>(std::clamp(limits.max_qp_init_rd_atom, 0, 16));
    with.retry_count = 7;
    with.rnr_retry_count = 0;
    return with;
}

// ---- acceptor ----

acceptor::acceptor(const std::string& address) : channel_(make_channel()) {
    const endpoint on(address);
    host_ = on.host();
    try {
        check(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), "rdma_create_id");
        check(rdma_bind_addr(id_, on.get()), "rdma_bind_addr");
        check(rdma_listen(id_, 16), "rdma_listen");
    } catch (...) {
        if (id_ != nullptr) rdma_destroy_id(id_);
        rdma_destroy_event_channel(channel_);
        throw;
    }
}

acceptor::~acceptor() {
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
}

std::string acceptor::address() const {
    return "rdma://" + host_ + ":" + std::to_string(ntohs(rdma_get_src_port(id_)));
}

request acceptor::next() {
    for (;;) {
        cm_event e = next_event(channel_);
        if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            return {.id = e.id,
                    .private_data = std::move(e.private_data),
                    .responder_resources = e.responder_resources,
                    .initiator_depth = e.initiator_depth};
    }
}

std::unique_ptr<peer> acceptor::accept(const request& r, std::span<const std::byte> private_data, std::uint16_t slots) {
    rdma_event_channel* own = make_channel();
    std::unique_ptr<peer> made(new peer(r.id, own, slots));
    check(rdma_migrate_id(r.id, own), "rdma_migrate_id");
    made->greeted_with_ = r.private_data;
    made->make_queue_pair();
    const bytes greeting = made->with_witness(private_data);
    rdma_conn_param with = parameters(r.id->verbs, greeting);
    with.responder_resources = std::min(with.responder_resources, r.responder_resources);
    with.initiator_depth = std::min(with.initiator_depth, r.initiator_depth);
    check(rdma_accept(r.id, &with), "rdma_accept");
    return made;
}

void acceptor::reject(const request& r, std::span<const std::byte> private_data) {
    const int rc = rdma_reject(r.id, private_data.data(), static_cast<std::uint8_t>(private_data.size()));
    const int cause = errno;
    rdma_destroy_id(r.id);
    if (rc != 0) throw_errno("rdma_reject", cause);
}

// ---- devices ----

std::string device_of(const std::string& address) {
    const endpoint on(address);
    rdma_cm_id* id = nullptr;
    check(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
    const bool bound = rdma_bind_addr(id, on.get()) == 0 && id->verbs != nullptr;
    const std::string name = bound ? ibv_get_device_name(id->verbs->device) : "";
    rdma_destroy_id(id);
    if (!bound) throw failure("bare peer: no RDMA device has the address " + address);
    return name;
}

std::optional<std::uint64_t> hardware_counter(const std::string& device, const std::string& name) {
    std::ifstream file("/sys/class/infiniband/" + device + "/ports/1/hw_counters/" + name);
    std::uint64_t value = 0;
    if (!(file >> value)) return std::nullopt;
    return value;
}

} // namespace sluice::bare
