#pragma once

#include <liburing.h>

namespace sluice::bench::raw {

/// A bare ring with the set-up of the executor's: same flags, same sizes, registered ring descriptor.
class ring {
public:
    explicit ring(unsigned entries = 256);
    ~ring() { io_uring_queue_exit(&ring_); }
    ring(const ring&) = delete;
    ring& operator=(const ring&) = delete;

    io_uring* get() noexcept { return &ring_; }
    /// A free entry, submitting what is queued when there is none.
    io_uring_sqe* entry() noexcept;

private:
    io_uring ring_{};
};

} // namespace sluice::bench::raw
