#pragma once

#include "benchmarks/raw/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace sluice::bench::raw {

enum class sending { copies, zero_copy };

/// As stream, but this thread sends through a bare ring, `blocks` sends linked into a chain at a time so that they keep
/// their order, with or without IORING_OP_SEND_ZC; another thread receives.
class ring_stream {
public:
    ring_stream(int from, int to, std::size_t size_bytes, unsigned blocks, sending how);
    void run(std::uint64_t operations);
    /// Zero-copy sends whose data the kernel copied all the same [io_uring_prep_send_zc(3)].
    std::uint64_t copied() const noexcept { return copied_; }

private:
    int from_;
    int to_;
    std::size_t size_bytes_;
    unsigned blocks_;
    sending how_;
    std::uint64_t copied_ = 0;
    memory source_;
    memory target_;
};

} // namespace sluice::bench::raw
