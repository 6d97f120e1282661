#include <sluice/transfer_operation.hpp>

#include "net/provider.hpp"

#include <utility>

namespace sluice::detail {

const char* to_string(transfer_kind kind) noexcept {
    switch (kind) {
    case transfer_kind::read: return "read";
    case transfer_kind::write: return "write";
    case transfer_kind::write_with_immediate: return "write_with_immediate";
    case transfer_kind::fetch_add: return "fetch_add";
    case transfer_kind::compare_swap: return "compare_swap";
    case transfer_kind::send: return "send";
    case transfer_kind::receive: return "receive";
    }
    return "unknown operation";
}

transfer::transfer(provider_connection& connection, transfer_kind what, operation_options options) noexcept
    : kind(what), connection_(&connection) {
    const auto limit = options.deadline.count() != 0 ? options.deadline : connection.options().default_deadline;
    if (limit.count() == 0) return;
    timer_.owner = this;
    timer_.fire = &transfer::on_deadline;
    timer_.deadline = deadline_after(limit);
}

transfer::~transfer() {
    SLUICE_EXPECTS(!in_flight_, "connection: a coroutine was destroyed while its operation is in flight; request a stop "
                                "and wait for the task to end instead");
}

bool transfer::begin(promise_base& waiter) noexcept {
    SLUICE_EXPECTS(!begun_, "connection: an operation was awaited twice");
    SLUICE_EXPECTS(&waiter.home() == &connection_->home(),
                   "connection: used by a task of another executor than the one it belongs to");
    begun_ = true;
    const stop_token token = waiter.token();
    if (token.stop_requested()) [[unlikely]] {
        failed_ = true;
        error_ = errc::canceled;
        connection_->began();
        connection_->ended(*this, false);
        return false;
    }
    executor_ = &waiter.home();
    ready_node::handle = waiter.handle;
    started = std::chrono::steady_clock::now();
    in_flight_ = true;
    if (token.stop_possible()) {
        stop_state_ = token.state();
        stop_hook_.owner = this;
        stop_hook_.invoke = &transfer::on_stop;
        stop_state_->link(stop_hook_);
    }
    if (timer_.owner != nullptr) executor_->add_timer(timer_);
    connection_->began();
    starting_ = true;
    connection_->start(*this);
    starting_ = false;
    if (in_flight_) return true;
    // It could be done at once. Others get their turn now and then all the same.
    if (executor_->take_inline_budget()) return false;
    executor_->make_ready(*this);
    return true;
}

void transfer::complete() noexcept {
    let_go();
    connection_->ended(*this, true);
    if (!starting_) executor_->make_ready(*this);
}

void transfer::complete(error e) noexcept {
    let_go();
    failed_ = static_cast<bool>(e.code());
    error_ = std::move(e);
    connection_->ended(*this, !failed_);
    if (!starting_) executor_->make_ready(*this);
}

inline void transfer::let_go() noexcept {
    SLUICE_EXPECTS(in_flight_, "provider: a transfer completed twice, or before it began");
    in_flight_ = false;
    if (stop_hook_.linked) stop_state_->unlink(stop_hook_);
    if (timer_.linked) executor_->remove_timer(timer_);
}

void transfer::on_deadline(timer_node& node) noexcept {
    transfer& self = *static_cast<deadline_timer&>(node).owner;
    self.connection_->cancel(self, errc::deadline_exceeded);
}

void transfer::on_stop(stop_callback_node& node) noexcept {
    transfer& self = *static_cast<stop_hook&>(node).owner;
    self.connection_->cancel(self, errc::canceled);
}

} // namespace sluice::detail
