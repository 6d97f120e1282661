#pragma once

#include <sluice/contract.hpp>
#include <sluice/operation.hpp>

#include <cerrno>
#include <cstdint>
#include <linux/io_uring.h>

namespace sluice::detail {

/// Watches a foreign descriptor with one request to the kernel for as long as it is awaited: no system call and no
/// coroutine between one event and the next. It ends when it is canceled, or with the kernel's refusal.
///
/// The callback runs in the completion loop each time the descriptor becomes ready, and must resume nothing. It takes all
/// that is there: what it leaves is told of only with what comes next [io_uring_prep_poll_multishot(3)].
class [[nodiscard]] multishot_poll final : public operation {
public:
    /// `events` and what the callback is given are poll(2)'s bits. After it has returned false it is not called again.
    using callback = bool (*)(void* context, std::uint32_t events) noexcept;

    multishot_poll(int fd, std::uint32_t events, callback on_ready, void* context) noexcept
        : operation(&multishot_poll::step), on_ready_(on_ready), context_(context) {
        SLUICE_EXPECTS(on_ready != nullptr, "multishot_poll: without a callback");
        request_.code = opcode::poll_add;
        request_.fd = fd;
        request_.op_flags = events;
        request_.length = IORING_POLL_ADD_MULTI;
    }
    /// -ECANCELED, another -errno, or 0 after the callback has returned false.
    std::int32_t await_resume() const noexcept { return result_ < 0 ? result_ : 0; }

private:
    static bool step(operation& op) noexcept {
        auto& self = static_cast<multishot_poll&>(op);
        if (self.result_ < 0) return true;
        if (self.goes_on_) self.goes_on_ = self.on_ready_(self.context_, static_cast<std::uint32_t>(self.result_));
        if ((self.flags_ & IORING_CQE_F_MORE) != 0) return false;
        return !self.goes_on_ || self.restart(); // the kernel gives up when its completion queue is full
    }

    callback on_ready_;
    void* context_;
    bool goes_on_ = true;
};

} // namespace sluice::detail
