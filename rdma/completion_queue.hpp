#pragma once

#include <sluice/contract.hpp>
#include <sluice/result.hpp>

#include "rdma/device.hpp"
#include "rdma/verbs.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice::rdma {

/// A completion queue with an account of its room: what may report to it is reserved first, and never exceeds its
/// entries, for an overrun kills every queue pair on it [ibv_poll_cq(3)]. It is never resized, which not every
/// transport can; who finds no room makes another one.
///
/// Thread rule: made on any thread; reserve and release under the lock of its owner; everything else on the executor's.
class completion_queue {
public:
    /// Events go to `channel`, with the completion queue's own address. Errors: the device's limit of entries;
    /// out_of_resources, with the memlock limit that is its usual cause.
    static result<std::unique_ptr<completion_queue>> create(device& on, ibv_comp_channel* channel,
                                                            std::uint32_t entries);
    /// No queue pair reports to it any more. Acknowledges every event that was fetched, else destroying it would wait
    /// for ever [ibv_get_cq_event(3)].
    ~completion_queue();
    completion_queue(const completion_queue&) = delete;
    completion_queue& operator=(const completion_queue&) = delete;

    ibv_cq* get() const noexcept { return cq_; }

    ///@{
    /// Room for so many completions at once; false when there is not, or when it is broken.
    bool reserve(std::uint32_t entries) noexcept;
    void release(std::uint32_t entries) noexcept;
    std::uint32_t room() const noexcept { return entries_ - reserved_; }
    ///@}

    /// The next completions, how many; what is not a success is in each. It breaks when the device reports a failure of
    /// the queue itself, and has nothing more from then on.
    std::uint32_t poll(std::span<ibv_wc> into) noexcept;
    /// Asks for an event on the next completion, unless that has been asked for and not happened yet. It breaks when
    /// the device refuses: sleeping on it would be for ever.
    void arm() noexcept;
    /// An event was asked for and has not been fetched: there is none in the channel otherwise.
    bool armed() const noexcept { return armed_; }
    /// An event of it was fetched from the channel.
    void on_event() noexcept;

    bool broken() const noexcept { return broken_.load(std::memory_order_relaxed); }
    /// Says why in the log, once.
    void mark_broken(const char* call, int reason) noexcept;

private:
    completion_queue(device& on, const verbs& calls) noexcept : on_(on), api_(calls) {}
    void acknowledge() noexcept;

    // constant after create
    device& on_;
    const verbs& api_;
    ibv_cq* cq_ = nullptr;
    std::uint32_t entries_ = 0;

    std::uint32_t reserved_ = 0; // under the owner's lock

    // executor thread only
    std::uint32_t unacknowledged_ = 0;
    bool armed_ = false;

    std::atomic<bool> broken_{false};
};

} // namespace sluice::rdma
