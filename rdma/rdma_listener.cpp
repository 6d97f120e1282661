#include "rdma/rdma_listener.hpp"

#include <sluice/contract.hpp>

#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::rdma {

namespace {

/// What a peer is told whose request decode() refused.
greeting::refusal answer_to(std::span<const std::byte> request, const error& why) {
    if (why == errc::version_mismatch) return greeting::refusal::version;
    const std::string_view text(reinterpret_cast<const char*>(request.data()), request.size());
    return text.starts_with("SLCR") ? greeting::refusal::malformed : greeting::refusal::not_sluice;
}

} // namespace

rdma_listener::rdma_listener(executor& home, std::unique_ptr<cm_id> id, sluice::address address, listen_options options,
                             detail::provider_setup setup)
    : home_(home), id_(std::move(id)), address_(std::move(address)), options_(std::move(options)),
      setup_(std::move(setup)) {
    id_->observe(this);
    sweeper_ = sweep();
    sweeper_.start(home_);
}

rdma_listener::~rdma_listener() { rdma_listener::close(); }

void rdma_listener::close() noexcept {
    if (std::exchange(closed_, true)) return;
    id_.reset(); // frees the port
    sweeper_.end(home_);
    arrivals_.clear();
    rails_.clear();
    ready_.clear();
    arrived_.set();
}

task<result<std::unique_ptr<detail::provider_connection>>> rdma_listener::accept() {
    for (;;) {
        if (closed_) co_return error(errc::closed, "accept on " + address_.to_string() + ": the listener was closed");
        if (!ready_.empty()) {
            auto connection = std::move(ready_.front());
            ready_.pop_front();
            co_return std::move(connection);
        }
        if (lost_) co_return *lost_;
        arrived_.reset();
        auto waited = co_await arrived_.wait();
        if (!waited) co_return std::move(waited).error();
    }
}

void rdma_listener::on_cm_event(cm_id&, cm_event e) noexcept {
    if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(std::move(e));
    if (e.type != RDMA_CM_EVENT_DEVICE_REMOVAL) return;
    lost_ =
        error::from_errno(ENODEV, "accept on " + address_.to_string() + ": its RDMA device was removed; listen again");
    id_.reset();
    arrived_.set();
}

void rdma_listener::on_request(cm_event e) {
    const auto request = greeting::decode(e.private_data);
    if (!request) return refuse(e, answer_to(e.private_data, request.error()), request.error());
    if (request->what != greeting::kind::request)
        return refuse(e, greeting::refusal::malformed,
                      error(errc::protocol_error, "rdma handshake: a greeting of another kind than a request"));
    const auto found = std::find_if(arrivals_.begin(), arrivals_.end(),
                                    [&](const auto& each) { return each->number() == request->connection; });
    if (request->lane == 0 && found == arrivals_.end()) {
        if (arrivals_.size() + ready_.size() >= options_.backlog)
            return refuse(e, greeting::refusal::busy,
                          error::from_errno(EAGAIN, "listen_options.backlog = " + std::to_string(options_.backlog) +
                                                        " connections wait already"));
        arrivals_.push_back(std::make_unique<arrival>(*this, home_, request->connection));
        return arrivals_.back()->add(std::move(e), *request);
    }
    if (found == arrivals_.end() || !(*found)->expects(*request))
        return refuse(e, greeting::refusal::malformed,
                      error(errc::protocol_error, "rdma handshake: lane " + std::to_string(request->lane) +
                                                      " of a connection that doesn't wait for it"));
    (*found)->add(std::move(e), *request);
}

void rdma_listener::refuse(const cm_event& e, greeting::refusal why, const error& cause) {
    ++rejected_;
    reject(*e.request, why, cause);
}

void rdma_listener::reject(cm_id& id, greeting::refusal why, const error& cause) {
    SLUICE_LOG(info, "rdma: a connection from ", id.peer_address(), " was refused: ", cause.message());
    greeting answer;
    answer.what = greeting::kind::reject;
    answer.why = why;
    const auto bytes = answer.encode();
    // Where it fails the request has gone already, which may be why there was no accepting it, or goes without a reason
    // when its id does.
    const bool told = api().reject(id.get(), bytes.data(), static_cast<std::uint8_t>(bytes.size())) == 0;
    if (told && why == greeting::refusal::no_resources) // which the operator of this end can mend, and nobody else is told of
        SLUICE_LOG_ONCE(warning, "rdma: connections are refused, such as one from ", id.peer_address(), ": ", cause.message());
}

std::shared_ptr<rail_maker> rdma_listener::rail_for(ibv_context* context) {
    std::erase_if(rails_, [](const auto& each) { return each->stale(); });
    const auto found =
        std::find_if(rails_.begin(), rails_.end(), [&](const auto& each) { return each->context() == context; });
    if (found != rails_.end()) return *found;
    return rails_.emplace_back(std::make_shared<rail_maker>(*this, home_, context));
}

void rdma_listener::rail_is_decided() noexcept {
    for (const auto& each : arrivals_) each->nudge();
}

void rdma_listener::admit(assembly& parts, const greeting& agreed, const greeting& theirs) {
    SLUICE_EXPECTS(!closed_, "rdma: a connection came to a listener that was closed");
    ready_.push_back(hand_over(home_, options_.connection, setup_, parts, agreed, theirs, false));
    arrived_.set();
}

net::background rdma_listener::sweep() {
    for (;;) {
        co_await swept_.wait();
        std::erase_if(arrivals_, [this](const auto& each) {
            if (!each->over()) return false;
            if (each->failed()) ++rejected_;
            return true;
        });
    }
}

} // namespace sluice::rdma
