#include "rdma/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace sluice::rdma {

namespace {

/// As much data may be unaccounted for: its buffers come back that much later.
constexpr std::uint64_t unsignalled_bytes_max = 64 * 1024;

constexpr std::uint32_t size_of_ring(std::uint32_t depth) noexcept { return std::bit_ceil(depth); }

} // namespace

work_chain::work_chain() noexcept {
    for (std::uint32_t i = 0; i < length_max; ++i) requests[i].sg_list = segments[i].data();
}

std::size_t send_queue::header_memory_bytes(std::uint32_t depth) noexcept {
    return std::size_t{size_of_ring(depth)} * frame::header_bytes;
}

send_queue::send_queue(std::uint32_t depth, std::uint32_t generation, std::uint32_t inline_bytes,
                       private_memory headers, std::uint32_t first)
    : depth_(depth), mask_(size_of_ring(depth) - 1), generation_(generation), inline_bytes_(inline_bytes),
      signal_every_(std::max(1U, depth / 4)), ring_(std::make_unique<work[]>(size_of_ring(depth))),
      headers_(std::move(headers)), head_(first), posted_(first), tail_(first) {
    SLUICE_EXPECTS(depth >= 1 && depth <= 1U << 20, "send queue: 1 to 2^20 work requests");
    SLUICE_EXPECTS(generation < 1U << 31, "send queue: a generation of at most 31 bits");
    SLUICE_EXPECTS(headers_.size_bytes() >= header_memory_bytes(depth), "send queue: too little memory for headers");
}

std::uint32_t send_queue::fill(work_chain& chain) noexcept {
    SLUICE_EXPECTS(unposted() > 0, "send queue: nothing to post");
    const std::uint32_t count = std::min(unposted(), work_chain::length_max);
    for (std::uint32_t i = 0; i < count; ++i) {
        ibv_send_wr& request = chain.requests[i];
        const std::uint32_t position = posted_ + i;
        request.wr_id = id_of(position);
        request.next = i + 1 < count ? &chain.requests[i + 1] : nullptr;
        request.send_flags = 0;
        prepare(request, chain.segments[i], position);
        unsignalled_bytes_ += ring_[position & mask_].bytes;
        if (++unsignalled_ >= signal_every_ || unsignalled_bytes_ >= unsignalled_bytes_max || i + 1 == count) {
            request.send_flags |= IBV_SEND_SIGNALED;
            unsignalled_ = 0;
            unsignalled_bytes_ = 0;
        }
    }
    return count;
}

void send_queue::prepare(ibv_send_wr& request, std::array<ibv_sge, 2>& segments, std::uint32_t position) noexcept {
    const work& w = ring_[position & mask_];
    if (w.what == work::kind::frame) {
        prepare_frame(request, segments, w, position);
        return;
    }
    const bool atomic = w.what == work::kind::fetch_add || w.what == work::kind::compare_swap;
    SLUICE_EXPECTS(!atomic || w.bytes == 8, "queue pair: an atomic of other than 8 bytes");
    segments[0] = {reinterpret_cast<std::uint64_t>(w.data), w.bytes, w.local_key};
    request.num_sge = w.bytes > 0 ? 1 : 0;
    switch (w.what) {
    case work::kind::write:
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags |= fence_;
        if (w.bytes > 0 && w.bytes <= inline_bytes_ && w.inline_allowed) request.send_flags |= IBV_SEND_INLINE;
        break;
    case work::kind::read: request.opcode = IBV_WR_RDMA_READ; break;
    case work::kind::fetch_add:
        request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        request.wr.atomic = {w.remote_address, w.operand, 0, w.remote_key};
        return;
    case work::kind::compare_swap:
        request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        request.wr.atomic = {w.remote_address, w.expected, w.operand, w.remote_key};
        return;
    case work::kind::frame: break;
    }
    request.wr.rdma = {w.remote_address, w.remote_key};
}

/// The header stands in memory of its own until the frame has been sent, unless the device copies it inline.
void send_queue::prepare_frame(ibv_send_wr& request, std::array<ibv_sge, 2>& segments, const work& w,
                               std::uint32_t position) noexcept {
    SLUICE_EXPECTS(w.header.payload_bytes == w.bytes, "queue pair: a frame whose header says another payload");
    std::byte* const header = headers_.data() + std::size_t{position & mask_} * frame::header_bytes;
    const auto encoded = w.header.encode();
    std::memcpy(header, encoded.data(), encoded.size());
    segments[0] = {reinterpret_cast<std::uint64_t>(header), frame::header_bytes, headers_.local_key()};
    segments[1] = {reinterpret_cast<std::uint64_t>(w.data), w.bytes, w.local_key};
    request.num_sge = w.bytes > 0 ? 2 : 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags |= fence_;
    if (frame::header_bytes + w.bytes <= inline_bytes_ && (w.inline_allowed || w.bytes == 0))
        request.send_flags |= IBV_SEND_INLINE;
}

ibv_send_wr send_queue::marker() const noexcept {
    ibv_send_wr request{};
    request.wr_id = id_of(posted_ - 1);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    return request;
}

} // namespace sluice::rdma
