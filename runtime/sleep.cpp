#include <sluice/sleep.hpp>

namespace sluice {

namespace detail {

std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds d) noexcept {
    using clock = std::chrono::steady_clock;
    const auto now = clock::now();
    if (d > clock::time_point::max() - now) return clock::time_point::max();
    return now + d;
}

} // namespace detail

bool sleep_until::begin(detail::promise_base& promise) noexcept {
    const stop_token token = promise.token();
    if (token.stop_requested()) {
        canceled_ = true;
        return false;
    }
    detail::ready_node::handle = promise.handle;
    executor_ = &promise.home();
    fire = &sleep_until::on_time;
    executor_->add_timer(*this);
    if (token.stop_possible()) {
        stop_state_ = token.state();
        stop_hook_.owner = this;
        stop_hook_.invoke = &sleep_until::on_stop;
        stop_state_->link(stop_hook_);
    }
    return true;
}

void sleep_until::on_time(detail::timer_node& node) noexcept {
    auto& self = static_cast<sleep_until&>(node);
    if (self.stop_hook_.linked) self.stop_state_->unlink(self.stop_hook_);
    self.executor_->make_ready(self);
}

void sleep_until::on_stop(detail::stop_callback_node& node) noexcept {
    sleep_until& self = *static_cast<stop_hook&>(node).owner;
    if (!self.linked) return; // it fired already and success wins
    self.executor_->remove_timer(self);
    self.canceled_ = true;
    self.executor_->make_ready(self);
}

} // namespace sluice
