#include "rdma/cm_wait.hpp"

#include "rdma/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace sluice::rdma {

namespace {

// Of InfiniBand's connection manager, which RoCE has too: nobody listens.
constexpr int reject_invalid_service_id = 8;
constexpr int reject_stale_connection = 10;

/// "status -110: Connection timed out"
std::string status_text(int status) {
    std::string text = "status " + std::to_string(status);
    if (status == cm_event::failed_here) text += ": a step on this side failed";
    else if (status < 0) text += ": " + std::generic_category().message(-status);
    return text;
}

/// What there is a code for, else ECONNABORTED.
int code_of(int status) noexcept { return status < 0 && status != cm_event::failed_here ? -status : ECONNABORTED; }

error refused(greeting::refusal why) {
    const std::string text = std::string("connection request refused: ") + to_string(why);
    switch (why) {
    case greeting::refusal::version: return {make_error_code(errc::version_mismatch), text};
    case greeting::refusal::busy: return error::from_errno(EAGAIN, text + "; try again later");
    case greeting::refusal::no_resources: return {make_error_code(errc::out_of_resources), text};
    case greeting::refusal::device: return error::from_errno(EHOSTUNREACH, text + " (its rdma_devices)");
    case greeting::refusal::none:
    case greeting::refusal::not_sluice:
    case greeting::refusal::malformed: break;
    }
    return {make_error_code(errc::protocol_error), text};
}

error rejected(const cm_event& e) {
    const bool silent =
        std::all_of(e.private_data.begin(), e.private_data.end(), [](std::byte b) { return b == std::byte{}; });
    if (is_stale(e))
        return error::from_errno(EAGAIN, "connection request refused: the peer's connection manager still has a connection "
                                         "of this queue pair's number (reject reason 10, stale connection); try again");
    if (silent) {
        const bool nobody = e.status == reject_invalid_service_id || e.status == -ECONNREFUSED;
        return error::from_errno(
            ECONNREFUSED, "connection request refused: " +
                              std::string(nobody ? "nobody listens there" : "nobody listens there, or takes no more") +
                              " (reject reason " + std::to_string(e.status) + ")");
    }
    auto told = greeting::decode(e.private_data);
    if (!told) return std::move(told).error();
    if (told->what == greeting::kind::reject) return refused(told->why);
    return {make_error_code(errc::protocol_error), "connection request refused with a greeting that is no refusal"};
}

} // namespace

bool is_stale(const cm_event& e) noexcept {
    return e.type == RDMA_CM_EVENT_REJECTED && e.status == reject_stale_connection;
}

std::optional<error> failure_of(const cm_event& e) {
    const std::string why = " (" + status_text(e.status) + ")";
    switch (e.type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
        return error::from_errno(EHOSTUNREACH,
                                 "address resolution: no RDMA device leads there, or nobody has this address" + why +
                                     "; `rdma link` lists the devices");
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return error::from_errno(EHOSTUNREACH, "route resolution: no path between the devices" + why);
    case RDMA_CM_EVENT_UNREACHABLE: return error::from_errno(EHOSTUNREACH, "connection request: nobody answers" + why);
    case RDMA_CM_EVENT_REJECTED: return rejected(e);
    case RDMA_CM_EVENT_CONNECT_ERROR:
        return error::from_errno(code_of(e.status), "connection request: it failed" + why);
    case RDMA_CM_EVENT_DISCONNECTED:
        return error::from_errno(ECONNRESET, "the peer closed the connection while it was set up");
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return error::from_errno(ENODEV, "the RDMA device was removed while the connection was set up");
    default: break;
    }
    if (e.status == 0) return std::nullopt;
    return error::from_errno(code_of(e.status),
                             "connection manager event " + std::to_string(static_cast<int>(e.type)) + why);
}

void cm_wait::on_cm_event(cm_id&, cm_event e) noexcept {
    e.request.reset(); // this is no listener
    events_.push_back(std::move(e));
    arrived_.set();
}

task<result<cm_event>> cm_wait::next() {
    while (events_.empty()) {
        arrived_.reset();
        auto waited = co_await arrived_.wait();
        if (!waited) co_return std::move(waited).error();
    }
    cm_event e = std::move(events_.front());
    events_.pop_front();
    co_return e;
}

task<result<cm_event>> cm_wait::expect(rdma_cm_event_type wanted) {
    for (;;) {
        auto e = co_await next();
        if (!e) co_return std::move(e).error();
        found_stale_ = is_stale(*e);
        found_unresolved_ = e->type == RDMA_CM_EVENT_ADDR_ERROR && e->status == -ETIMEDOUT;
        if (auto why = failure_of(*e)) co_return std::move(*why);
        if (e->type == wanted) co_return std::move(*e);
    }
}

result<void> cm_wait::check() const {
    for (const cm_event& e : events_)
        if (auto why = failure_of(e)) return std::move(*why);
    return {};
}

} // namespace sluice::rdma
