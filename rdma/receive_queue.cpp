#include "rdma/receive_queue.hpp"
#include "rdma/limits.hpp"

#include "runtime/log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace sluice::rdma {

namespace {

// A slab is registered by the executor's thread itself: so large that few are needed, so small that it takes no time.
constexpr std::uint32_t slab_slots_min = 64;
constexpr std::uint32_t slab_slots_max = 512;

} // namespace

result<std::unique_ptr<receive_queue>> receive_queue::create(device& on, std::uint32_t slots_max) {
    SLUICE_EXPECTS(slots_max > 0 && slots_max <= static_cast<std::uint32_t>(on.limits().max_srq_wr),
                   "receive queue: more slots than the device allows");
    const verbs& calls = api();
    std::unique_ptr<receive_queue> made(new receive_queue(on, calls));
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = slots_max;
    attributes.attr.max_sge = 1;
    errno = 0;
    made->srq_ = calls.create_srq(on.pd(), &attributes);
    if (made->srq_ == nullptr)
        return verbs_error(errno, "ibv_create_srq of " + std::to_string(slots_max) + " receives on " + on.name());
    made->slots_max_ = slots_max;
    return made;
}

receive_queue::~receive_queue() {
    if (srq_ == nullptr) return;
    if (const int failed = api_.destroy_srq(srq_); failed != 0)
        SLUICE_LOG(error, "ibv_destroy_srq on ", on_.name(), ": ", std::strerror(failed));
}

result<std::uint32_t> receive_queue::add(std::uint32_t least, std::uint32_t wanted) {
    SLUICE_EXPECTS(least >= 1 && least <= wanted, "receive queue: at least one slot, and not more than wanted");
    const std::uint32_t room = slots_max_ - wanted_;
    if (room < least)
        return error(make_error_code(errc::out_of_resources),
                     "the receive queue of " + on_.name() + " has room for " + std::to_string(room) + " of " +
                         std::to_string(slots_max_) + " slots, a connection needs " + std::to_string(least) +
                         "; use more executors, or close connections");
    const std::uint32_t count = std::min(room, wanted);
    const std::uint32_t needed = wanted_ + count > circulating_ ? wanted_ + count - circulating_ : 0;
    std::uint32_t unused = static_cast<std::uint32_t>(slots_.size()) - circulating_;
    while (unused < needed) {
        const std::uint32_t more = std::min(std::max(needed - unused, slab_slots_min), slab_slots_max);
        if (auto grown = grow(more); !grown) return grown.error();
        unused += more;
    }
    wanted_ += count;
    for (std::uint32_t i = 0; i < needed; ++i) push(returned_, take(unused_));
    circulating_ += needed;
    if (const int failed = post_returned(); failed != 0) {
        wanted_ -= count;
        while (circulating_ > wanted_ && !returned_.empty()) retire(take(returned_));
        return verbs_error(failed, "ibv_post_srq_recv of " + std::to_string(needed) + " slots on " + on_.name());
    }
    return count;
}

void receive_queue::remove(std::uint32_t count) noexcept {
    SLUICE_EXPECTS(count <= wanted_, "receive queue: more slots removed than were added");
    wanted_ -= count;
}

result<void> receive_queue::grow(std::uint32_t more) {
    auto slab = private_memory::create(on_, std::size_t{more} * slot_bytes);
    if (!slab) return slab.error();
    slots_.reserve(slots_.size() + more);
    slabs_.push_back(std::move(*slab));
    for (std::uint32_t i = 0; i < more; ++i) {
        slots_.push_back({slabs_.back().data() + std::size_t{i} * slot_bytes, slabs_.back().local_key(), none, 0});
        push(unused_, static_cast<std::uint32_t>(slots_.size() - 1));
    }
    return {};
}

void receive_queue::hold(slot_list& list, std::uint32_t slot, std::uint32_t length) noexcept {
    slots_[slot].length = length;
    push(list, slot);
}

std::uint32_t receive_queue::take(slot_list& list) noexcept {
    SLUICE_EXPECTS(!list.empty(), "receive queue: took from an empty list of slots");
    const std::uint32_t slot = list.first;
    list.first = slots_[slot].next;
    return slot;
}

/// 0, or why not all of them were posted.
int receive_queue::post_returned() noexcept {
    int failed = 0;
    while (!returned_.empty() && failed == 0) {
        std::uint32_t count = 0;
        for (std::uint32_t s = returned_.first; s != none && count < list_max; s = slots_[s].next) ++count;
        for (std::uint32_t posted = post_some(count, failed); posted > 0; --posted) static_cast<void>(take(returned_));
    }
    return failed;
}

/// Posts the first `count` that wait as one list; how many of them the device has now.
std::uint32_t receive_queue::post_some(std::uint32_t count, int& failed) noexcept {
    std::array<ibv_recv_wr, list_max> requests;
    std::array<ibv_sge, list_max> memory;
    std::uint32_t s = returned_.first;
    for (std::uint32_t i = 0; i < count; ++i, s = slots_[s].next) {
        memory[i] = {reinterpret_cast<std::uint64_t>(slots_[s].memory), static_cast<std::uint32_t>(slot_bytes),
                     slots_[s].local_key};
        requests[i] = {wr_id_bit | s, i + 1 < count ? &requests[i + 1] : nullptr, &memory[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    failed = api_.post_srq_recv(srq_, requests.data(), &bad);
    if (failed == 0) [[likely]]
        return count;
    if (failed < 0) failed = -failed;
    SLUICE_LOG_ONCE(warning, "ibv_post_srq_recv on ", on_.name(), ": ", std::strerror(failed), "; trying again");
    // With no word on where it stopped a slot could be posted twice, and two frames land in it: better one less.
    if (bad < requests.data() || bad >= requests.data() + count) return count;
    return static_cast<std::uint32_t>(bad - requests.data());
}

} // namespace sluice::rdma
