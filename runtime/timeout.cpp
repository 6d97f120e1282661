#include <sluice/executor.hpp>
#include <sluice/timeout.hpp>

namespace sluice::detail {

stop_at::stop_at(executor& home, stop_token outer, std::chrono::steady_clock::time_point when) noexcept
    : home_(home), source_(outer) {
    deadline = when;
    fire = [](timer_node& node) noexcept {
        auto& self = static_cast<stop_at&>(node);
        if (self.source_.stop_requested()) return;
        self.expired_ = true;
        self.source_.request_stop();
    };
    if (when != std::chrono::steady_clock::time_point::max()) home_.add_timer(*this);
}

stop_at::~stop_at() {
    if (linked) home_.remove_timer(*this);
}

} // namespace sluice::detail
