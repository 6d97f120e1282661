#include <sluice/detail/branch.hpp>

#include <utility>

namespace sluice::detail {

void branch_group::on_end(std::size_t index, std::exception_ptr exception) noexcept {
    SLUICE_EXPECTS(running_ > 0, "when_all, when_any: more tasks ended than were started");
    if (!any_ended_) {
        any_ended_ = true;
        first_ = index;
        if (when_ == stops_at::first_end) source_.request_stop();
    }
    if (exception && !exception_) {
        exception_ = std::move(exception);
        source_.request_stop();
    }
    if (--running_ == 0 && waiter_ != nullptr) home_.make_ready(*waiter_);
}

} // namespace sluice::detail
