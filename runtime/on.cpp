#include <sluice/on.hpp>

namespace sluice::detail {

remote_call::remote_call(executor& other, detached (*make)(remote_call&)) noexcept : other_(other), make_(make) {
    work_node_.call = stop_node_.call = this;
}

void remote_call::begin(promise_base& waiter) noexcept {
    SLUICE_EXPECTS(home_ == nullptr, "on: awaited twice");
    home_ = &waiter.home();
    waiter_ = &waiter;
    const stop_token token = waiter.token();
    stopped_before_ = token.stop_requested();
    if (token.stop_possible() && !stopped_before_) {
        stop_state_ = token.state();
        invoke = [](stop_callback_node& hook) noexcept {
            auto& self = static_cast<remote_call&>(hook);
            ++self.awaited_;
            self.stop_node_.run = &remote_call::stop_there;
            self.other_.post(self.stop_node_);
        };
        stop_state_->link(*this);
    }
    ++awaited_;
    work_node_.run = &remote_call::start_there;
    other_.post(work_node_); // before any stop, and posts of one thread run in order
}

void remote_call::start_there(posted_node& posted) noexcept {
    remote_call& self = *static_cast<node&>(posted).call;
    self.source_.emplace();
    if (self.stopped_before_) self.source_->request_stop();
    self.make_(self).start(self.other_, self.source_->token());
}

void remote_call::stop_there(posted_node& posted) noexcept {
    remote_call& self = *static_cast<node&>(posted).call;
    if (self.source_) self.source_->request_stop();
    posted.run = &remote_call::back_home;
    self.home_->post(posted);
}

void remote_call::done() noexcept {
    SLUICE_EXPECTS(executor::current() == &other_, "on: the task ended on another thread than it ran on");
    source_.reset();
    work_node_.run = &remote_call::back_home;
    home_->post(work_node_);
}

void remote_call::back_home(posted_node& posted) noexcept {
    remote_call& self = *static_cast<node&>(posted).call;
    if (&posted == &self.work_node_ && self.linked) self.stop_state_->unlink(self);
    if (--self.awaited_ == 0) self.home_->make_ready(*self.waiter_);
}

} // namespace sluice::detail
