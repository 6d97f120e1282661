#include "benchmarks/raw/verbs.hpp"

#include "benchmarks/bench.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <utility>

namespace sluice::bench::raw {

namespace {

// As many bytes inline as ours asks for.
constexpr std::uint32_t inline_wanted = 96;
// As long as ours waits for an acknowledgement: 4.096 us * 2^18, 1.07 s [rdma_set_option(3)].
constexpr std::uint8_t ack_timeout = 18;

[[noreturn]] void fail_errno(const char* call, int number) {
    bench::fail(fmt::format("{}: {}", call, std::strerror(number)));
}

/// Of calls that give 0, or -1 and errno.
void check(int rc, const char* call) {
    if (rc != 0) fail_errno(call, errno);
}

/// Of calls that give 0 or an errno value.
void check_code(int rc, const char* call) {
    if (rc != 0) fail_errno(call, rc < 0 ? errno : rc);
}

/// A null channel makes the calls on it wait until they are done [rdma_create_id(3)].
rdma_cm_id* make_id() {
    rdma_cm_id* id = nullptr;
    check(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
    return id;
}

sockaddr_storage parse(const std::string& address) {
    constexpr std::string_view scheme = "rdma://";
    const auto colon = address.rfind(':');
    if (!address.starts_with(scheme) || colon < scheme.size())
        bench::fail(fmt::format("\"{}\" is not an address such as rdma://10.0.0.2:0", address));
    std::string host = address.substr(scheme.size(), colon - scheme.size());
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int rc = getaddrinfo(host.c_str(), nullptr, &hints, &found); rc != 0)
        bench::fail(fmt::format("address \"{}\": {}", address, gai_strerror(rc)));
    sockaddr_storage made{};
    std::memcpy(&made, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return made; // the port does not matter: each pair takes one of its own
}

sockaddr* generic(sockaddr_storage& a) { return reinterpret_cast<sockaddr*>(&a); }

} // namespace

const char* to_string(wait how) noexcept { return how == wait::poll ? "poll" : "event"; }

std::string first_rdma_address(std::string& why) {
    rdma_event_channel* probe = rdma_create_event_channel();
    if (probe == nullptr) {
        why = fmt::format("no RDMA device here: rdma_create_event_channel: {}", std::strerror(errno));
        return {};
    }
    rdma_destroy_event_channel(probe);
    ifaddrs* all = nullptr;
    check(getifaddrs(&all), "getifaddrs");
    std::string found;
    for (const ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
        if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
        rdma_cm_id* id = make_id();
        char text[INET_ADDRSTRLEN] = {};
        sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
        if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) == 0 && id->verbs != nullptr)
            found = fmt::format("rdma://{}:0", inet_ntop(AF_INET, &address.sin_addr, text, sizeof text));
        rdma_destroy_id(id);
    }
    freeifaddrs(all);
    if (found.empty()) why = "no RDMA device here has an IPv4 address; give --address";
    return found;
}

// ---- one end ----

verbs_end::~verbs_end() {
    if (id_ == nullptr) return;
    if (unacknowledged_ > 0) ibv_ack_cq_events(cq_, unacknowledged_);
    rdma_destroy_qp(id_);
    ibv_dereg_mr(mr_);
    ibv_destroy_cq(cq_);
    ibv_destroy_comp_channel(channel_);
    ibv_dealloc_pd(pd_);
    rdma_destroy_id(id_);
}

void verbs_end::make(rdma_cm_id* id, std::size_t memory_bytes, unsigned sends, unsigned receives) {
    id_ = id;
    std::uint8_t timeout = ack_timeout; // without it the path's own counts, which a busy machine exceeds [rdma_set_option(3)]
    static_cast<void>(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout));
    pd_ = ibv_alloc_pd(id->verbs);
    if (pd_ == nullptr) fail_errno("ibv_alloc_pd", errno);
    channel_ = ibv_create_comp_channel(id->verbs);
    if (channel_ == nullptr) fail_errno("ibv_create_comp_channel", errno);
    cq_ = ibv_create_cq(id->verbs, static_cast<int>(sends + receives), nullptr, channel_, 0);
    if (cq_ == nullptr) fail_errno("ibv_create_cq", errno);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = sends,
                  .max_recv_wr = receives,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = inline_wanted};
    if (rdma_create_qp(id, pd_, &wanted) != 0) {
        wanted.cap.max_inline_data = 0; // some devices have none
        check(rdma_create_qp(id, pd_, &wanted), "rdma_create_qp");
    }
    qp_ = id->qp;
    inline_bytes_ = wanted.cap.max_inline_data;
    memory_ = huge_pages(memory_bytes);
    mr_ = ibv_reg_mr(pd_, memory_.get(), memory_bytes,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (mr_ == nullptr) fail_errno("ibv_reg_mr", errno);
    local_key_ = mr_->lkey;
    remote_key_ = mr_->rkey;
}

void verbs_end::borrow(ibv_qp* qp, ibv_cq* cq, std::size_t memory_bytes) {
    qp_ = qp;
    cq_ = cq;
    inline_bytes_ = inline_wanted;
    memory_ = huge_pages(memory_bytes);
}

void verbs_end::set_receiver_not_ready_timer() {
    if (id_->verbs->device->transport_type == IBV_TRANSPORT_IWARP) return; // it has none
    ibv_qp_attr timer{};
    timer.min_rnr_timer = 12; // 0.64 ms, as ours; rdma_cm leaves it at 655 ms [rdma_connect(3)]
    check_code(ibv_modify_qp(qp_, &timer, IBV_QP_MIN_RNR_TIMER), "ibv_modify_qp");
}

void verbs_end::add(ibv_wr_opcode what, std::uint64_t number, std::size_t offset, std::size_t bytes,
                    const verbs_end* remote) {
    if (listed_ == batch) post();
    ibv_sge& part = parts_[listed_];
    part = {.addr = reinterpret_cast<std::uintptr_t>(memory_.get() + offset),
            .length = static_cast<std::uint32_t>(bytes),
            .lkey = local_key_};
    ibv_send_wr& w = list_[listed_];
    w = {};
    w.wr_id = number;
    w.sg_list = &part;
    w.num_sge = 1;
    w.opcode = what;
    w.send_flags = IBV_SEND_SIGNALED;
    if (what != IBV_WR_RDMA_READ && bytes <= inline_bytes_) w.send_flags |= IBV_SEND_INLINE;
    if (remote != nullptr) {
        w.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(remote->memory_.get() + offset);
        w.wr.rdma.rkey = remote->remote_key_;
    }
    if (listed_ > 0) list_[listed_ - 1].next = &w;
    ++listed_;
}

void verbs_end::post() {
    if (listed_ == 0) return;
    listed_ = 0;
    ibv_send_wr* left = list_;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    for (;;) {
        const int rc = ibv_post_send(qp_, left, &left);
        if (rc == 0) return;
        // Soft-RoCE was seen to call its queue full when all but a few of its work requests had been completed.
        if (rc != ENOMEM || std::chrono::steady_clock::now() > give_up) check_code(rc, "ibv_post_send");
        std::this_thread::yield();
    }
}

void verbs_end::post_receive(std::uint64_t number, std::size_t offset, std::size_t bytes) {
    ibv_sge part{.addr = reinterpret_cast<std::uintptr_t>(memory_.get() + offset),
                 .length = static_cast<std::uint32_t>(bytes),
                 .lkey = local_key_};
    ibv_recv_wr w{.wr_id = number, .next = nullptr, .sg_list = &part, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    check_code(ibv_post_recv(qp_, &w, &bad), "ibv_post_recv");
}

std::span<const ibv_wc> verbs_end::next(wait how) {
    int found = 0;
    while ((found = ibv_poll_cq(cq_, batch, seen_)) == 0) {
        if (how == wait::poll) continue;
        check_code(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
        if ((found = ibv_poll_cq(cq_, batch, seen_)) != 0) break; // what came before it was armed has no event
        ibv_cq* which = nullptr;
        void* context = nullptr;
        check(ibv_get_cq_event(channel_, &which, &context), "ibv_get_cq_event");
        if (++unacknowledged_ == 1024) ibv_ack_cq_events(cq_, std::exchange(unacknowledged_, 0));
    }
    if (found < 0) bench::fail("ibv_poll_cq failed");
    for (const ibv_wc& each : std::span(seen_, static_cast<std::size_t>(found))) {
        if (each.status != IBV_WC_SUCCESS) bench::fail(fmt::format("bare verbs: {}", ibv_wc_status_str(each.status)));
    }
    return {seen_, static_cast<std::size_t>(found)};
}

// ---- both ends ----

verbs_pair::verbs_pair(const std::string& address, std::size_t memory_bytes, unsigned sends, unsigned receives) {
    sockaddr_storage where = parse(address);
    listening_ = make_id();
    if (rdma_bind_addr(listening_, generic(where)) != 0 || listening_->verbs == nullptr)
        bench::fail(fmt::format("no RDMA device here has the address {}", address));
    check(rdma_listen(listening_, 1), "rdma_listen");
    rdma_conn_param with{};
    with.responder_resources = RDMA_MAX_RESP_RES; // what the device can do, at most
    with.initiator_depth = RDMA_MAX_INIT_DEPTH;
    with.retry_count = 7;
    with.rnr_retry_count = 7;
    std::thread accepting([&, with]() mutable {
        rdma_cm_id* id = nullptr;
        check(rdma_get_request(listening_, &id), "rdma_get_request");
        server_.make(id, memory_bytes, sends, receives);
        check(rdma_accept(id, &with), "rdma_accept");
    });
    sockaddr_storage to = *reinterpret_cast<sockaddr_storage*>(rdma_get_local_addr(listening_));
    rdma_cm_id* id = make_id();
    check(rdma_resolve_addr(id, nullptr, generic(to), 5000), "rdma_resolve_addr");
    check(rdma_resolve_route(id, 5000), "rdma_resolve_route");
    client_.make(id, memory_bytes, sends, receives);
    check(rdma_connect(id, &with), "rdma_connect");
    accepting.join();
    client_.set_receiver_not_ready_timer();
    server_.set_receiver_not_ready_timer();
}

// The ends go without a word to each other: rdma_disconnect on such ids waits for the other end's answer.
verbs_pair::~verbs_pair() { rdma_destroy_id(listening_); }

} // namespace sluice::bench::raw
