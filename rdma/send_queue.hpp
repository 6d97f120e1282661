#pragma once

#include <sluice/contract.hpp>

#include "rdma/private_memory.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/verbs.hpp"
#include "rdma/witness.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace sluice::rdma {

/// Work requests that are posted as one list, in the form that verbs want: scratch that all queue pairs of a rail use
/// in turn, so that it stays in the cache.
struct work_chain {
    static constexpr std::uint32_t length_max = 32; // of work; one request more may end it

    work_chain() noexcept;
    work_chain(const work_chain&) = delete;
    work_chain& operator=(const work_chain&) = delete;

    std::array<ibv_send_wr, length_max + 1> requests{}; // each points at its segments
    std::array<std::array<ibv_sge, 2>, length_max + 1> segments{};
};

/// The ring of a queue pair's work: what is in flight, then what waits to be posted. Work is counted by its position,
/// modulo 2^32, and a completion is asked for selectively: it says that everything up to its position has ended, which
/// a reliable connection does in order. The last of each posted list always asks for one, so that the drain always
/// ends.
///
/// With a device that confirms by reading only reads ask for a completion. A list whose last work is none gets one
/// request more, a read of the peer's witness that bears the position of that work: the device needs room for it, the
/// ring does not.
class send_queue {
public:
    /// `generation` tells this queue pair's completions from those of an earlier one with the same number; below 2^31.
    /// `headers`: frame::header_bytes for each entry. `inline_bytes`: what the device takes inline. `first`: the
    /// position of the first work.
    send_queue(std::uint32_t depth, std::uint32_t generation, std::uint32_t inline_bytes, private_memory headers,
               std::uint32_t first = 0);
    ///@{
    /// Before anything is posted, for a device with quirks::confirms_by_reading: where the byte goes that is read, and
    /// where it comes from.
    void confirm_by_reading(const ibv_sge& into) noexcept { witness_into_ = into; }
    void set_witness(const witness& of_peer) noexcept { witness_ = of_peer; }
    ///@}
    bool confirms_by_reading() const noexcept { return witness_into_.length != 0; }
    /// Requests that the device may have at once for so much work: at most one more with each list.
    static std::uint32_t requests_max(std::uint32_t depth, bool confirms_by_reading) noexcept {
        return confirms_by_reading ? 2 * depth : depth;
    }
    /// Bytes of headers for this depth.
    static std::size_t header_memory_bytes(std::uint32_t depth) noexcept;

    std::uint32_t depth() const noexcept { return depth_; }
    std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }
    std::uint32_t room() const noexcept { return depth_ - (tail_ - head_); }
    std::uint32_t in_flight() const noexcept { return tail_ - head_; }
    std::uint32_t posted() const noexcept { return posted_ - head_; }
    std::uint32_t unposted() const noexcept { return tail_ - posted_; }

    void push(const work& w) noexcept {
        SLUICE_EXPECTS(room() > 0, "queue pair: work added without room; see room()");
        ring_[tail_++ & mask_] = w;
    }
    /// Puts what waits into the chain, as much as fits, linked and the last of it signalled; how much work that is, not
    /// counting a read that confirms it. At least one waits.
    std::uint32_t fill(work_chain& chain) noexcept;
    /// So many of them the device has now.
    void mark_posted(std::uint32_t count) noexcept { posted_ += count; }
    /// A request that does nothing and completes as if it were the last one posted.
    ibv_send_wr marker() const noexcept;
    /// The device has nothing of it any more, without having said so.
    void take_back() noexcept { posted_ = head_; }

    /// How many have ended with this completion; 0 when it is none of this ring's, or not for the first time.
    std::uint32_t covered_by(std::uint64_t wr_id) const noexcept {
        const std::uint32_t count = static_cast<std::uint32_t>(wr_id) - head_ + 1;
        return (wr_id >> 32) == generation_ && count <= posted_ - head_ ? count : 0;
    }
    /// The oldest, out of the ring.
    work pop() noexcept {
        SLUICE_EXPECTS(head_ != tail_, "queue pair: a completion without work");
        const work w = ring_[head_ & mask_];
        if (head_ == posted_) ++posted_;
        ++head_;
        return w;
    }

private:
    bool asks_now(const work& w, bool last) noexcept;
    void confirm(work_chain& chain, std::uint32_t at) const noexcept;
    void prepare(ibv_send_wr& request, std::array<ibv_sge, 2>& segments, std::uint32_t position) noexcept;
    void prepare_frame(ibv_send_wr& request, std::array<ibv_sge, 2>& segments, const work& w,
                       std::uint32_t position) noexcept;
    std::uint64_t id_of(std::uint32_t position) const noexcept { return std::uint64_t{generation_} << 32 | position; }

    // constant after construction
    std::uint32_t depth_;
    std::uint32_t mask_; // of the ring, whose size is a power of two
    std::uint32_t generation_;
    std::uint32_t inline_bytes_;
    std::unique_ptr<work[]> ring_;
    private_memory headers_;

    std::uint32_t head_;   // oldest that has not ended
    std::uint32_t posted_; // oldest that the device does not have
    std::uint32_t tail_;
    std::uint32_t unsignalled_ = 0; // posted since the last that asks for a completion
    std::uint64_t unsignalled_bytes_ = 0;

    // constant once something is posted
    ibv_sge witness_into_{}; // of length 0 if the device doesn't confirm by reading
    std::optional<witness> witness_;
};

} // namespace sluice::rdma
