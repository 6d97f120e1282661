#include "benchmarks/raw/ring.hpp"

#include "benchmarks/bench.hpp"

#include <cstring>
#include <fmt/format.h>

namespace sluice::bench::raw {

ring::ring(unsigned entries) {
    io_uring_params params{};
    params.flags = IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                   IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE;
    params.cq_entries = entries * 4;
    if (const int rc = io_uring_queue_init_params(entries, &ring_, &params); rc < 0)
        fail(fmt::format("io_uring_setup: {}; Linux 6.1 or newer that allows io_uring is needed", std::strerror(-rc)));
    io_uring_register_ring_fd(&ring_);
}

io_uring_sqe* ring::entry() noexcept {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
        io_uring_submit(&ring_);
        sqe = io_uring_get_sqe(&ring_);
    }
    return sqe;
}

} // namespace sluice::bench::raw
