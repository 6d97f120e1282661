#include "rdma/completion_queue.hpp"
#include "rdma/limits.hpp"

#include "runtime/log.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace sluice::rdma {

namespace {

/// Acknowledging takes a mutex, so many at once [ibv_get_cq_event(3)].
constexpr std::uint32_t acknowledged_at_once = 128;

} // namespace

result<std::unique_ptr<completion_queue>> completion_queue::create(device& on, ibv_comp_channel* channel,
                                                                   std::uint32_t entries) {
    SLUICE_EXPECTS(entries > 0, "completion queue: without entries");
    const verbs& calls = api();
    const auto entries_max = static_cast<std::uint32_t>(on.limits().max_cqe);
    if (entries > entries_max)
        return error(make_error_code(errc::out_of_resources), "a completion queue of " + std::to_string(entries) +
                                                                  " entries, " + on.name() + " allows " +
                                                                  std::to_string(entries_max) + " (max_cqe)");
    std::unique_ptr<completion_queue> made(new completion_queue(on, calls));
    errno = 0;
    made->cq_ = calls.create_cq(on.context(), static_cast<int>(entries), made.get(), channel, 0);
    if (made->cq_ == nullptr)
        return verbs_error(errno, "ibv_create_cq of " + std::to_string(entries) + " entries on " + on.name());
    // At least what was asked for [ibv_create_cq(3)].
    made->entries_ = static_cast<std::uint32_t>(made->cq_->cqe);
    SLUICE_EXPECTS(made->entries_ >= entries, "completion queue: smaller than what was asked for");
    return made;
}

completion_queue::~completion_queue() {
    if (cq_ == nullptr) return;
    SLUICE_EXPECTS(reserved_ == 0, "completion queue: destroyed while something may report to it");
    acknowledge();
    if (const int failed = api_.destroy_cq(cq_); failed != 0)
        SLUICE_LOG(error, "ibv_destroy_cq on ", on_.name(), ": ", std::strerror(failed));
}

bool completion_queue::reserve(std::uint32_t entries) noexcept {
    if (broken() || entries > room()) return false;
    reserved_ += entries;
    return true;
}

void completion_queue::release(std::uint32_t entries) noexcept {
    SLUICE_EXPECTS(entries <= reserved_, "completion queue: more released than was reserved");
    reserved_ -= entries;
}

std::uint32_t completion_queue::poll(std::span<ibv_wc> into) noexcept {
    const int found = api_.poll_cq(cq_, static_cast<int>(into.size()), into.data());
    if (found >= 0) [[likely]]
        return static_cast<std::uint32_t>(found);
    mark_broken("ibv_poll_cq", -found);
    return 0;
}

void completion_queue::arm() noexcept {
    if (armed_ || broken()) return;
    const int failed = api_.req_notify_cq(cq_, 0);
    if (failed == 0) armed_ = true;
    else mark_broken("ibv_req_notify_cq", failed < 0 ? -failed : failed);
}

void completion_queue::on_event() noexcept {
    armed_ = false; // a request is for one event
    if (++unacknowledged_ == acknowledged_at_once) acknowledge();
}

void completion_queue::mark_broken(const char* call, int reason) noexcept {
    if (broken_.exchange(true, std::memory_order_relaxed)) return;
    SLUICE_LOG(error, call, " on ", on_.name(), ": ", std::strerror(reason), "; every connection on this queue ends");
}

void completion_queue::acknowledge() noexcept {
    if (unacknowledged_ != 0) api_.ack_cq_events(cq_, std::exchange(unacknowledged_, 0));
}

} // namespace sluice::rdma
