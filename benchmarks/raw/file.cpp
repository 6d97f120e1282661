#include "benchmarks/raw/file.hpp"

#include "benchmarks/bench.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace sluice::bench::raw {

file_reader::file_reader(int fd, std::span<std::byte> memory, std::size_t block_bytes, unsigned depth)
    : memory_(memory), block_bytes_(block_bytes), depth_(depth) {
    const iovec all{.iov_base = memory.data(), .iov_len = memory.size()};
    if (const int rc = io_uring_register_buffers(ring_.get(), &all, 1); rc < 0)
        fail(fmt::format("io_uring_register_buffers: {}; raise the memlock limit (ulimit -l)", std::strerror(-rc)));
    if (const int rc = io_uring_register_files(ring_.get(), &fd, 1); rc < 0)
        fail(fmt::format("io_uring_register_files: {}", std::strerror(-rc)));
}

void file_reader::start(unsigned slot, std::uint64_t offset) {
    io_uring_sqe* sqe = ring_.entry();
    io_uring_prep_read_fixed(sqe, 0, memory_.data() + slot * block_bytes_, static_cast<unsigned>(block_bytes_), offset, 0);
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, slot);
}

void file_reader::run(std::span<const std::uint64_t> offsets) {
    std::size_t next = 0;
    std::size_t in_flight = 0;
    while (next < std::min<std::size_t>(depth_, offsets.size())) {
        start(static_cast<unsigned>(next), offsets[next]);
        ++next;
        ++in_flight;
    }
    while (in_flight > 0) {
        if (const int rc = io_uring_submit_and_wait(ring_.get(), 1); rc < 0 && rc != -EINTR)
            fail(fmt::format("io_uring_enter: {}", std::strerror(-rc)));
        unsigned head = 0;
        unsigned seen = 0;
        io_uring_cqe* cqe = nullptr;
        io_uring_for_each_cqe(ring_.get(), head, cqe) {
            ++seen;
            --in_flight;
            if (cqe->res != static_cast<int>(block_bytes_)) fail(fmt::format("read: result {}", cqe->res));
            if (next == offsets.size()) continue;
            start(static_cast<unsigned>(cqe->user_data), offsets[next++]);
            ++in_flight;
        }
        io_uring_cq_advance(ring_.get(), seen);
    }
}

} // namespace sluice::bench::raw
