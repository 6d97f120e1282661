#include <sluice/detail/wait_queue.hpp>

namespace sluice::detail {

void wait_queue::push(wait_node& node) noexcept {
    SLUICE_EXPECTS(node.queue_ == nullptr, "wait: in two queues at once");
    node.queue_ = this;
    node.newer_ = nullptr;
    node.older_ = newest_;
    (newest_ == nullptr ? oldest_ : newest_->newer_) = &node;
    newest_ = &node;
}

void wait_queue::remove(wait_node& node) noexcept {
    SLUICE_EXPECTS(node.queue_ == this, "wait: removed from a queue that it is not in");
    (node.older_ == nullptr ? oldest_ : node.older_->newer_) = node.newer_;
    (node.newer_ == nullptr ? newest_ : node.newer_->older_) = node.older_;
    node.queue_ = nullptr;
}

void wait_node::finish(outcome how) noexcept {
    SLUICE_EXPECTS(executor::current() == home_, "channel, semaphore, mutex, event: used on another thread than that of "
                                                 "the executor whose tasks wait for it");
    queue_->remove(*this);
    if (linked) stop_state_->unlink(*this);
    outcome_ = how;
    home_->make_ready(*this);
}

void wait_node::wait(promise_base& promise, wait_queue& queue) noexcept {
    handle = promise.handle;
    home_ = &promise.home();
    queue.push(*this);
    const stop_token token = promise.token();
    if (!token.stop_possible()) return;
    stop_state_ = token.state();
    invoke = [](stop_callback_node& node) noexcept {
        auto& self = static_cast<wait_node&>(node);
        self.finish(outcome::canceled);
        if (self.on_stop_ != nullptr) self.on_stop_(self);
    };
    stop_state_->link(*this);
}

} // namespace sluice::detail
