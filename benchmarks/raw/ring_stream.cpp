#include "benchmarks/raw/ring_stream.hpp"

#include "benchmarks/bench.hpp"
#include "benchmarks/raw/ring.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <thread>

namespace sluice::bench::raw {

namespace {

constexpr unsigned report_usage = 1U << 3;                  // IORING_SEND_ZC_REPORT_USAGE, newer than liburing 2.3
constexpr std::uint32_t usage_copied = std::uint32_t{1} << 31; // IORING_NOTIF_USAGE_ZC_COPIED

/// Waits for the ends of `sends` sends, and with zero copy for the kernel's letting go of their memory too.
std::uint64_t reap(io_uring* ring, unsigned sends, std::size_t size_bytes, sending how) {
    std::uint64_t copied = 0;
    for (unsigned left = how == sending::zero_copy ? 2 * sends : sends; left > 0;) {
        io_uring_cqe* cqe = nullptr;
        if (const int failed = io_uring_submit_and_wait(ring, 1); failed < 0) fail(fmt::format("ring: {}", std::strerror(-failed)));
        while (left > 0 && io_uring_peek_cqe(ring, &cqe) == 0) {
            if ((cqe->flags & IORING_CQE_F_NOTIF) != 0) {
                copied += (static_cast<std::uint32_t>(cqe->res) & usage_copied) != 0;
            } else {
                if (cqe->res != static_cast<int>(size_bytes))
                    fail(fmt::format("send of {} bytes: {}", size_bytes, cqe->res < 0 ? std::strerror(-cqe->res) : "short"));
                if (how == sending::zero_copy && (cqe->flags & IORING_CQE_F_MORE) == 0) --left; // no notification comes
            }
            io_uring_cqe_seen(ring, cqe);
            --left;
        }
    }
    return copied;
}

} // namespace

ring_stream::ring_stream(int from, int to, std::size_t size_bytes, unsigned blocks, sending how)
    : from_(from), to_(to), size_bytes_(size_bytes), blocks_(blocks), how_(how),
      source_(huge_pages(size_bytes * blocks)), target_(huge_pages(size_bytes * blocks)) {}

void ring_stream::run(std::uint64_t operations) {
    std::thread receiver([this, operations] {
        for (std::uint64_t i = 0; i < operations; ++i) {
            std::byte* block = target_.get() + i % blocks_ * size_bytes_;
            if (recv(to_, block, size_bytes_, MSG_WAITALL) != static_cast<ssize_t>(size_bytes_))
                fail(fmt::format("recv: {}", std::strerror(errno)));
        }
    });
    ring r;
    for (std::uint64_t done = 0; done < operations;) {
        const unsigned now = static_cast<unsigned>(std::min<std::uint64_t>(blocks_, operations - done));
        for (unsigned i = 0; i < now; ++i) {
            io_uring_sqe* sqe = r.entry();
            const std::byte* block = source_.get() + (done + i) % blocks_ * size_bytes_;
            constexpr int flags = MSG_NOSIGNAL | MSG_WAITALL;
            if (how_ == sending::zero_copy) io_uring_prep_send_zc(sqe, from_, block, size_bytes_, flags, report_usage);
            else io_uring_prep_send(sqe, from_, block, size_bytes_, flags);
            if (i + 1 < now) sqe->flags |= IOSQE_IO_LINK;
        }
        copied_ += reap(r.get(), now, size_bytes_, how_);
        done += now;
    }
    receiver.join();
}

} // namespace sluice::bench::raw
