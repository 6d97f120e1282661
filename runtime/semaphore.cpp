#include <sluice/semaphore.hpp>

#include <limits>

namespace sluice {

void semaphore::release(std::size_t n) noexcept {
    SLUICE_EXPECTS(n <= std::numeric_limits<std::size_t>::max() - available_, "semaphore: more permits than can be counted");
    available_ += n;
    grant();
}

void semaphore::grant() noexcept {
    while (!waiting_.empty()) {
        auto& next = static_cast<acquire_operation&>(*waiting_.oldest());
        if (next.count_ > available_) return;
        available_ -= next.count_;
        next.finish(detail::wait_node::outcome::done);
    }
}

} // namespace sluice
