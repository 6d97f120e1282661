#include "rdma/arrival.hpp"

#include <sluice/contract.hpp>

#include "rdma/cm_wait.hpp"
#include "rdma/path_mtu.hpp"
#include "rdma/rdma_listener.hpp"
#include "runtime/joined_call.hpp"
#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace sluice::rdma {

arrival::lane::lane(arrival& o, const greeting& r, const cm_event& e) noexcept
    : owner(o), request(r), responder_resources(e.responder_resources), initiator_depth(e.initiator_depth) {}

void arrival::lane::on_cm_event(cm_id&, cm_event e) noexcept {
    if (failure_of(e)) return owner.fail();
    if (e.type != RDMA_CM_EVENT_ESTABLISHED) return;
    established = true;
    news.nudge();
}

arrival::arrival(rdma_listener& listener, executor& home, const std::array<std::byte, 16>& number)
    : listener_(listener), home_(home), number_(number) {
    timer_.owner = this;
    timer_.fire = [](detail::timer_node& node) noexcept { static_cast<timer&>(node).owner->give_up(); };
    timer_.deadline = detail::deadline_after(listener.options().connect_timeout);
    home_.add_timer(timer_);
}

arrival::~arrival() {
    if (timer_.linked) home_.remove_timer(timer_);
    for (const auto& each : lanes_) each->work.end(home_);
    for (const rdma_lane_parts& each : parts_.lanes)
        if (each.id != nullptr) each.id->observe(nullptr);
}

bool arrival::expects(const greeting& request) const noexcept {
    if (request.lane == 0) return lanes_.empty();
    if (failed_ || complete_ || parts_.on == nullptr || request.lane >= agreed_.lanes) return false;
    return std::none_of(lanes_.begin(), lanes_.end(),
                        [&](const auto& each) { return each->request.lane == request.lane; });
}

void arrival::add(cm_event e, const greeting& request) {
    SLUICE_EXPECTS(expects(request) && e.request != nullptr, "rdma: a lane without a place");
    if (request.lane == 0) {
        first_ = request;
        parts_.lanes.resize(1); // until it is agreed how many there are
    }
    lane& l = *lanes_.emplace_back(std::make_unique<lane>(*this, request, e));
    parts_of(l).id = std::move(e.request);
    parts_of(l).id->observe(&l);
    l.work = receive(l);
    l.work.start(home_);
}

void arrival::fail() noexcept {
    if (complete_) return;
    failed_ = true;
    if (timer_.linked) home_.remove_timer(timer_);
    nudge();
}

/// Who waits for an answer still hears that this end came to none, and not that nobody listens here.
void arrival::give_up() noexcept {
    for (const auto& each : lanes_)
        if (!each->answered)
            rdma_listener::reject(*parts_of(*each).id, greeting::refusal::busy,
                                  error(make_error_code(errc::deadline_exceeded),
                                        "its lanes were not there within connection_options.connect_timeout"));
    fail();
}

void arrival::nudge() noexcept {
    for (const auto& each : lanes_) each->news.nudge();
}

bool arrival::over() const noexcept {
    return (failed_ || complete_) &&
           std::all_of(lanes_.begin(), lanes_.end(), [](const auto& each) { return each->done; });
}

net::background arrival::receive(lane& l) {
    rdma_lane_parts* parts = nullptr; // the vector is as long as it gets once the rail is there
    bool fine = true;
    if (l.request.lane == 0) {
        maker_ = listener_.rail_for(parts_of(l).id->get()->verbs);
        while (!failed_ && !maker_->decided()) co_await l.news.wait();
        fine = !failed_ && check_port(l) && take_rail(l);
    } else {
        fine = check_port(l);
    }
    if (fine && parts_of(l).id->get()->verbs != parts_.on->on().context()) {
        refuse(l, greeting::refusal::malformed,
               error(errc::protocol_error,
                     "lane " + std::to_string(l.request.lane) + " came over another device than the first"));
        fine = false;
    }
    if (fine) {
        parts = &parts_of(l);
        auto making = detail::run_joined([this, &l, parts] {
            auto made = queue_pair::create(parts_.on, parts->id->get());
            if (made) parts->qp = std::move(*made);
            else l.failure = std::move(made).error();
        });
        co_await making;
        fine = !failed_ && accept(l);
    }
    while (fine && !failed_ && !l.established) co_await l.news.wait();
    if (fine && !failed_) settle(l);
    while (!failed_ && !complete_) co_await l.news.wait();
    if (failed_ && parts != nullptr && parts->qp != nullptr) {
        {
            draining out(*parts->qp);
            while (!out.done()) co_await out.news.wait();
        }
        cm_silence silence(parts->id->manager());
        auto destroying = detail::run_joined([parts, &silence] {
            const auto quiet = silence.begin();
            parts->qp.reset();
        });
        co_await destroying;
    }
    l.done = true;
    listener_.note_end();
}

bool arrival::check_port(lane& l) {
    if (auto ok = maker_->check_port(*parts_of(l).id->get()); !ok) {
        refuse(l, greeting::refusal::device, ok.error());
        return false;
    }
    return true;
}

bool arrival::take_rail(lane& l) {
    auto found = maker_->outcome();
    if (!found) {
        refuse(l, greeting::refusal::no_resources, found.error());
        return false;
    }
    parts_.on = std::move(*found);
    if (auto taken = parts_.take_slots(); !taken) {
        refuse(l, greeting::refusal::no_resources, taken.error());
        return false;
    }
    agreed_ = meet(greeting_of(greeting::kind::accept, listener_.options(), parts_, listener_.owner()), l.request);
    agreed_.connection = number_;
    if (agreed_.witness && !l.request.witness) {
        refuse(l, greeting::refusal::malformed,
               error(errc::protocol_error, "rdma handshake: no witness, which iWARP needs"));
        return false;
    }
    parts_.lanes.resize(agreed_.lanes);
    return true;
}

/// Answers the request, now that the queue pair is there.
bool arrival::accept(lane& l) {
    rdma_lane_parts& parts = parts_of(l);
    if (l.failure) {
        refuse(l, greeting::refusal::no_resources, *l.failure);
        return false;
    }
    l.answered = true;
    set_ack_timeout(*parts.id, listener_.options());
    greeting answer = agreed_;
    answer.lane = l.request.lane;
    answer.path_mtu = smaller_mtu(port_mtu(*parts.id->get()), l.request.path_mtu);
    const auto bytes = answer.encode();
    rdma_conn_param with = parameters_of(parts_.on->on(), bytes, l.responder_resources, l.initiator_depth);
    if (accept_with_mtu(*parts.id->get(), with, answer.path_mtu) == 0) return true;
    refuse(l, greeting::refusal::no_resources, error::from_errno(errno, "rdma_accept"));
    return false;
}

/// The lane is established: the last of them makes the connection.
bool arrival::settle(lane& l) {
    if (auto tuned = parts_of(l).qp->tune(); !tuned) {
        SLUICE_LOG(info, "rdma: a connection from ", parts_of(l).id->peer_address(),
                   " was dropped: ", tuned.error().message());
        fail();
        return false;
    }
    l.ready = true;
    if (lanes_.size() != agreed_.lanes ||
        !std::all_of(lanes_.begin(), lanes_.end(), [](const auto& each) { return each->ready; }))
        return true;
    complete_ = true;
    if (timer_.linked) home_.remove_timer(timer_);
    listener_.admit(parts_, agreed_, first_);
    nudge();
    return true;
}

void arrival::refuse(lane& l, greeting::refusal why, const error& cause) {
    l.answered = true;
    rdma_listener::reject(*parts_of(l).id, why, cause);
    fail();
}

} // namespace sluice::rdma
