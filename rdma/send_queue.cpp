#include "rdma/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace sluice::rdma {

namespace {

/// As much data may be unaccounted for: its buffers come back that much later.
constexpr std::uint64_t unsignalled_bytes_max = 64 * 1024;

/// So many completions for what is in flight: while the program sees to the first part, and posts what comes next, the
/// device works at the rest.
constexpr std::uint32_t completions_in_flight = 4;

/// What ends with word from the peer, on any device.
bool is_answered(const work& w) noexcept { return w.what != work::kind::write && w.what != work::kind::frame; }

constexpr std::uint32_t size_of_ring(std::uint32_t depth) noexcept { return std::bit_ceil(depth); }

} // namespace

work_chain::work_chain() noexcept {
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].sg_list = segments[i].data();
}

std::size_t send_queue::header_memory_bytes(std::uint32_t depth) noexcept {
    return std::size_t{size_of_ring(depth)} * frame::header_bytes;
}

send_queue::send_queue(std::uint32_t depth, std::uint32_t generation, std::uint32_t inline_bytes,
                       private_memory headers, std::uint32_t first)
    : depth_(depth), mask_(size_of_ring(depth) - 1), generation_(generation), inline_bytes_(inline_bytes),
      ring_(std::make_unique<work[]>(size_of_ring(depth))),
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
        const work& w = ring_[position & mask_];
        if (!asks_now(w, i + 1 == count)) continue;
        if (confirms_by_reading() && !is_answered(w)) { // ends the list here, perhaps before its time
            confirm(chain, i + 1);
            return i + 1;
        }
        request.send_flags |= IBV_SEND_SIGNALED;
    }
    return count;
}

/// Whether a completion is due with this work.
bool send_queue::asks_now(const work& w, bool last) noexcept {
    unsignalled_bytes_ += w.bytes;
    // Where a completion costs a request more, only as many as the ring needs.
    const std::uint32_t parted = confirms_by_reading() ? depth_ : in_flight() + completions_in_flight - 1;
    if (++unsignalled_ < parted / completions_in_flight && unsignalled_bytes_ < unsignalled_bytes_max && !last)
        return false;
    unsignalled_ = 0;
    unsignalled_bytes_ = 0;
    return true;
}

/// A read behind what is in the chain: the peer's device answers it when it has taken all before it [RFC 5040, 5.5].
void send_queue::confirm(work_chain& chain, std::uint32_t at) const noexcept {
    SLUICE_EXPECTS(at > 0 && at <= work_chain::length_max, "send queue: a confirmation of nothing");
    SLUICE_EXPECTS(witness_.has_value(), "send queue: work before the peer's witness is known");
    ibv_send_wr& request = chain.requests[at];
    chain.requests[at - 1].next = &request;
    chain.segments[at][0] = witness_into_;
    request.wr_id = chain.requests[at - 1].wr_id;
    request.next = nullptr;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {witness_->address, witness_->key};
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
