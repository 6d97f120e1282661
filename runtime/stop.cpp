#include <sluice/executor.hpp>
#include <sluice/stop.hpp>

namespace sluice {

stop_source::stop_source() : stop_source(stop_token{}) {}

stop_source::stop_source(stop_token parent) : executor_(executor::current()) {
    SLUICE_EXPECTS(executor_ != nullptr, "stop_source: made on a thread without an executor");
    posted_node::run = [](posted_node& node) noexcept { static_cast<stop_source&>(node).stop_now(); };
    stop_callback_node::invoke = [](stop_callback_node& node) noexcept { static_cast<stop_source&>(node).stop_now(); };
    if (!parent.stop_possible()) return;
    if (parent.stop_requested()) {
        state_.requested = true;
        return;
    }
    parent_ = parent.state();
    parent_->link(*this);
}

stop_source::~stop_source() {
    SLUICE_EXPECTS(executor::current() == executor_, "stop_source: destroyed on another thread than its executor's");
    SLUICE_EXPECTS(state_.head == nullptr, "stop_source: destroyed while operations still listen to its token");
    if (parent_ != nullptr) parent_->unlink(*this);
    if (posted_.load(std::memory_order_acquire)) executor_->forget(*this);
}

void stop_source::request_stop() noexcept {
    if (executor::current() == executor_) {
        stop_now();
        return;
    }
    if (!posted_.exchange(true, std::memory_order_acq_rel)) executor_->post(*this);
}

void stop_source::stop_now() noexcept {
    if (state_.requested) return;
    state_.requested = true;
    // A callback may unlink others (a canceled task's siblings), so always take the first that is left.
    while (state_.head != nullptr) {
        detail::stop_callback_node& node = *state_.head;
        state_.unlink(node);
        node.invoke(node);
    }
}

} // namespace sluice
