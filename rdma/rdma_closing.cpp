#include "rdma/assembly.hpp"
#include "rdma/completion_error.hpp"
#include "rdma/device.hpp"
#include "rdma/quirks.hpp"
#include "rdma/rdma_connection.hpp"

#include <algorithm>
#include <string>
#include <utility>

// How a connection ends: a goodbye and its acknowledgement, or the first failure; then all work comes back, then the
// queue pairs go.
namespace sluice::rdma {

namespace {

constexpr std::chrono::milliseconds longest_nudge{1000};

std::string milliseconds(std::chrono::nanoseconds t) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(t).count()) + " ms";
}

} // namespace

rdma_connection::~rdma_connection() {
    SLUICE_EXPECTS(in_flight() == 0 && shares_under_way_ == 0,
                   "connection: destroyed while an operation on it is awaited; stop it and wait first");
    for (timer* t : {&close_timer_, &pulse_, &drain_check_, &nudge_})
        if (t->linked) home().remove_timer(*t);
    state_ = state::down;
    for (auto& each : lanes_) each->end();
    if (terms_.slots_here > 0) rail_->remove_slots(terms_.slots_here);
}

void rdma_connection::restart(timer& t, std::chrono::nanoseconds after) noexcept {
    if (t.linked) home().remove_timer(t);
    t.deadline = detail::deadline_after(after);
    home().add_timer(t);
}

// ---- goodbyes ----

void rdma_connection::begin_close() noexcept {
    if (state_ != state::open) return;
    state_ = state::closing;
    cause_ = error(errc::closed, "this end closed the connection");
    something_left();
}

void rdma_connection::something_left() noexcept {
    if (state_ != state::closing || !requester_.all_left() || !outbox_.all_left()) return;
    state_ = state::said_goodbye;
    outbox_.control({.type = frame_type::goodbye});
    inbox_.drop_offers();
}

void rdma_connection::on_goodbye() noexcept {
    peer_said_goodbye_ = true;
    outbox_.control({.type = frame_type::goodbye_ack});
    if (state_ == state::said_goodbye) return;
    if (!cause_) cause_ = error(errc::closed, "the peer " + terms_.peer_address + " closed the connection");
    state_ = state::peer_left;
    restart(close_timer_, options().peer_timeout);
    shares_.close();
    outbox_.close(*cause_);
    requester_.close(*cause_);
    inbox_.close();
}

result<void> rdma_connection::on_goodbye_ack() {
    if (state_ != state::said_goodbye || std::exchange(goodbye_acknowledged_, true))
        return error(errc::protocol_error, "frame goodbye_ack: no goodbye of this end waits for it");
    // When both said goodbye, the peer waits for ours too.
    if (!peer_said_goodbye_ || acknowledged_goodbye_) leave();
    return {};
}

/// Both goodbyes are acknowledged. Where the peer's messages are confirmed by our answers to its reads, those must
/// still get there: a device that is moved to error sends no more of them. So one round trip more.
void rdma_connection::leave() noexcept {
    queue_pair& first = lane_at(0).qp();
    if (!rail_->on().quirks().confirms_by_reading || first.room() == 0) {
        tear_down();
        return;
    }
    answers_first_ = true;
    probe(lane_at(0));
}

/// A write of no bytes: the peer's device acknowledges it, its memory and its program don't matter.
void rdma_connection::probe(lane& on) noexcept {
    ++probes_;
    on.qp().add({.what = work::kind::write});
}

task<result<void>> rdma_connection::close() {
    begin_close();
    if (state_ < state::ending && !close_timer_.linked) restart(close_timer_, options().peer_timeout);
    auto ended = co_await closed();
    if (state_ == state::down) {
        // The queue pairs' resources are not kept for a connection that is closed, and giving them back takes the
        // device milliseconds: on helper threads. All that it needs is in here, should the connection go meanwhile.
        assembly rest;
        rest.on = rail_;
        rest.slots = std::exchange(terms_.slots_here, 0);
        for (auto& each : lanes_) rest.lanes.push_back(each->release());
        co_await rest.take_down();
    }
    co_return ended;
}

task<result<void>> rdma_connection::closed() {
    auto waited = co_await down_.wait();
    if (!waited) co_return waited;
    if (failure_) co_return *failure_;
    co_return result<void>();
}

// ---- losses ----

/// The queue pair went to error without a word, or the connection manager says that the peer disconnected.
void rdma_connection::peer_is_gone() noexcept {
    if (state_ >= state::ending) return;
    // Or this end's device ended it, and its word of why waits to be read.
    rail_->on().drain_events();
    for (auto& each : lanes_) each->qp().tell_events();
    if (state_ >= state::ending) return;
    if (state_ == state::peer_left || state_ == state::said_goodbye) {
        tear_down(); // that is what a goodbye announces
        return;
    }
    auto own = device_trouble();
    fail(own ? std::move(*own)
             : error(errc::closed, "the peer " + terms_.peer_address + " closed the connection without a goodbye"));
}

/// A device that goes, or its link, or the address, may end the queue pairs and the work on them before its event is
/// here. Then it is to blame, and not the peer. soft-RoCE only flushes the work of an address that has gone (seen on
/// Linux 6.12).
std::optional<error> rdma_connection::device_trouble() {
    const device& on = rail_->on();
    const auto up = on.is_alive() ? on.is_port_up(lane_at(0).port()) : std::nullopt;
    if (!up) return error(errc::closed, "the RDMA device " + on.name() + " failed or was removed");
    if (!*up) return error(errc::peer_lost, "the port of the RDMA device " + on.name() + " went down");
    if (!lane_at(0).has_local_address())
        return error(errc::peer_lost, "the address of this end, " + terms_.local_address + ", was removed from this host");
    return std::nullopt;
}

void rdma_connection::on_cm_event(const cm_event& e) noexcept {
    switch (e.type) {
    case RDMA_CM_EVENT_DISCONNECTED: peer_is_gone(); break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        fail(error(errc::closed, "the RDMA device " + rail_->on().name() + " was removed"));
        break;
    default: break; // TIMEWAIT_EXIT and the like change nothing
    }
}

void rdma_connection::on_queue_pair_event(lane&, ibv_event_type what) noexcept {
    if (state_ == state::down) return; // it is being destroyed, and its lanes end one after another
    const std::string& device = rail_->on().name();
    if (what == broken_frames)
        fail(error(errc::protocol_error, "the peer " + terms_.peer_address + " sent a frame of more than " +
                                             std::to_string(slot_bytes) + " bytes, or more frames than it has slots for"));
    switch (what) {
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_REQ_ERR:    // over iWARP and from some devices for the same
        if (peer_said_goodbye_) { // soft-iWARP says it too of an answer that the peer no longer waits for
            peer_is_gone();
            break;
        }
        // A device that is taken away loses the memory first, at which the peer still aims.
        if (auto own = device_trouble()) {
            fail(std::move(*own));
            break;
        }
        ++refused_;
        fail(error(errc::closed, "the peer " + terms_.peer_address +
                                     " aimed at memory that is not shared with it, or no more; the device ended the "
                                     "connection"));
        break;
    case IBV_EVENT_QP_FATAL: fail(error(errc::closed, "the RDMA device " + device + " gave the queue pair up")); break;
    case IBV_EVENT_CQ_ERR:
        fail(error(errc::closed, "a completion queue of the RDMA device " + device + " failed"));
        break;
    case IBV_EVENT_PORT_ERR:
        fail(error(errc::peer_lost, "the port of the RDMA device " + device + " went down"));
        break;
    case IBV_EVENT_GID_CHANGE:
        fail(error(errc::peer_lost, "the address of this end, " + terms_.local_address +
                                        ", was removed: its GID is gone from "
                                        "the table of the RDMA device " +
                                        device));
        break;
    case IBV_EVENT_DEVICE_FATAL:
        fail(error(errc::closed, "the RDMA device " + device + " failed or was removed"));
        break;
    default: break;
    }
    check_drained();
}

void rdma_connection::on_pulse(detail::timer_node& node) noexcept {
    rdma_connection& self = *static_cast<timer&>(node).owner;
    if (self.state_ >= state::ending) return;
    const bool heard = std::exchange(self.sign_of_life_, false);
    for (auto& each : self.lanes_) {
        const int silent = each->silent_pulses(heard);
        if (silent >= pulses_before_doubt && !self.close_timer_.linked) { // else that one decides
            auto why = self.device_trouble();
            if (!why && silent >= pulses_per_timeout)
                why = error(errc::peer_lost, "the peer " + self.terms_.peer_address + " gave no sign for " +
                                                 milliseconds(self.options().peer_timeout) +
                                                 " (connection_options.peer_timeout)");
            if (why) {
                self.fail(std::move(*why));
                return;
            }
        }
        if (!heard && each->usable && each->qp().in_flight() == 0) self.probe(*each);
    }
    self.restart(self.pulse_, self.options().peer_timeout / pulses_per_timeout);
}

/// Where the peer's device may miss what comes first, until it has shown that it did not.
void rdma_connection::on_nudge(detail::timer_node& node) noexcept {
    rdma_connection& self = *static_cast<timer&>(node).owner;
    if (self.state_ >= state::ending) return;
    bool missed = false;
    for (auto& each : self.lanes_) {
        if (each->ever_answered) continue;
        missed = true;
        if (each->qp().room() > 0) self.probe(*each);
    }
    if (!missed) return;
    self.nudge_after_ = std::min(2 * self.nudge_after_, longest_nudge);
    self.restart(self.nudge_, self.nudge_after_);
}

void rdma_connection::fail(error why) noexcept {
    if (state_ >= state::ending) return;
    failure_ = why;
    if (!cause_) cause_ = std::move(why);
    tear_down();
}

// ---- the end ----

void rdma_connection::tear_down() noexcept {
    if (state_ >= state::ending) return;
    state_ = state::ending;
    if (!cause_) cause_ = error(errc::closed);
    shares_.close();
    outbox_.close(*cause_);
    outbox_.shut();
    requester_.close(*cause_);
    for (auto& each : lanes_) each->shut();
    restart(drain_check_, std::chrono::nanoseconds(0)); // they may be drained already; else on_room() says so
}

void rdma_connection::on_drain_check(detail::timer_node& node) noexcept {
    static_cast<timer&>(node).owner->check_drained();
}

/// Once the device has given everything back, no memory is in use by it, and everything that waits can end. It always
/// does: see queue_pair::drained().
void rdma_connection::check_drained() noexcept {
    if (state_ != state::ending) return;
    if (std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) { return l->qp().drained(); })) end_everything();
}

void rdma_connection::end_everything() noexcept {
    state_ = state::down;
    for (timer* t : {&close_timer_, &pulse_, &drain_check_, &nudge_})
        if (t->linked) home().remove_timer(*t);
    inbox_.close();
    down_.set();
}

void rdma_connection::on_close_timeout(detail::timer_node& node) noexcept {
    rdma_connection& self = *static_cast<timer&>(node).owner;
    if (self.state_ == state::peer_left || self.answers_first_) {
        self.tear_down(); // it said goodbye but doesn't disconnect: that is its affair
        return;
    }
    self.fail(error(errc::peer_lost, "close: no goodbye from the peer " + self.terms_.peer_address + " within " +
                                         milliseconds(self.options().peer_timeout) +
                                         " (connection_options.peer_timeout)"));
}

} // namespace sluice::rdma
