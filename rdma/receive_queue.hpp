#pragma once

#include <sluice/contract.hpp>
#include <sluice/result.hpp>

#include "rdma/device.hpp"
#include "rdma/frame.hpp"
#include "rdma/private_memory.hpp"
#include "rdma/verbs.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sluice::rdma {

/// The shared receive queue of a rail with its slots. A slot is in the queue, or came with a completion and is held by
/// who handles it, or waits to be posted again, or is unused: its memory stays registered for the next who adds slots.
/// The memory grows in slabs, each registered once.
///
/// Thread rule: made on any thread, then executor-bound.
class receive_queue {
public:
    /// Slots by their number, linked through themselves in the order in which they came.
    struct slot_list {
        std::uint32_t first = none;
        std::uint32_t last = none;
        bool empty() const noexcept { return first == none; }
    };
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    /// Set in the wr_id of every receive, beside the slot's number: the opcode of a completion is valid only when that
    /// is a success [ibv_poll_cq(3)].
    static constexpr std::uint64_t wr_id_bit = std::uint64_t{1} << 63;

    /// At most `slots_max` at once, which the device allows. Errors: out_of_resources with the memlock limit.
    static result<std::unique_ptr<receive_queue>> create(device& on, std::uint32_t slots_max);
    /// Every queue pair on it is gone.
    ~receive_queue();
    receive_queue(const receive_queue&) = delete;
    receive_queue& operator=(const receive_queue&) = delete;

    ibv_srq* get() const noexcept { return srq_; }

    /// See rail::add_slots.
    result<std::uint32_t> add(std::uint32_t least, std::uint32_t wanted);
    /// A posted slot cannot be taken back: so many are kept back when they next return.
    void remove(std::uint32_t count) noexcept;

    ///@{
    /// A slot that came with a completion.
    std::span<const std::byte> bytes(std::uint32_t slot, std::uint32_t length) const noexcept {
        SLUICE_EXPECTS(length <= slot_bytes, "receive queue: more bytes than a slot has");
        return {slots_[slot].memory, length};
    }
    void hold(slot_list& list, std::uint32_t slot, std::uint32_t length) noexcept;
    /// The first of a list, with what it holds.
    std::span<const std::byte> front(const slot_list& list) const noexcept {
        return bytes(list.first, slots_[list.first].length);
    }
    std::uint32_t take(slot_list& list) noexcept;
    ///@}
    /// Posted again by the next post().
    void give_back(std::uint32_t slot) noexcept {
        SLUICE_EXPECTS(slot < slots_.size(), "receive queue: no such slot");
        if (circulating_ > wanted_) [[unlikely]]
            retire(slot);
        else push(returned_, slot);
    }
    /// Posts what was given back; what the device refuses is tried again by the next call.
    void post() noexcept {
        if (!returned_.empty()) static_cast<void>(post_returned());
    }

    /// Slots wait to be posted.
    bool behind() const noexcept { return !returned_.empty(); }

    /// In the queue, or on their way back to it.
    std::uint32_t slots() const noexcept { return circulating_; }
    std::uint32_t slots_max() const noexcept { return slots_max_; }

private:
    struct slot_state {
        std::byte* memory;
        std::uint32_t local_key;
        std::uint32_t next;   // in whatever list it is
        std::uint32_t length; // of what it holds
    };
    static constexpr std::uint32_t list_max = 32;

    receive_queue(device& on, const verbs& calls) noexcept : on_(on), api_(calls) {}
    void push(slot_list& list, std::uint32_t slot) noexcept {
        slots_[slot].next = none;
        (list.empty() ? list.first : slots_[list.last].next) = slot;
        list.last = slot;
    }
    void retire(std::uint32_t slot) noexcept {
        --circulating_;
        push(unused_, slot);
    }
    result<void> grow(std::uint32_t more);
    int post_returned() noexcept;
    std::uint32_t post_some(std::uint32_t count, int& failed) noexcept;

    // constant after create
    device& on_;
    const verbs& api_;
    ibv_srq* srq_ = nullptr;
    std::uint32_t slots_max_ = 0;

    std::vector<private_memory> slabs_;
    std::vector<slot_state> slots_;
    slot_list unused_;
    slot_list returned_;
    std::uint32_t wanted_ = 0;      // added and not removed
    std::uint32_t circulating_ = 0; // not unused; more than wanted until enough have returned
};

} // namespace sluice::rdma
