#pragma once

#include <sluice/contract.hpp>
#include <sluice/stop.hpp>

#include <atomic>
#include <cstdint>
#include <thread>

namespace sluice::detail {

/// Work from other threads, and whether they must wake the executor: one atomic word holds both, so that there is no
/// window between looking and sleeping. The word is the newest posted node, null, or the mark "asleep".
///
/// The mark is sticky: an executor that sleeps again and again (one operation at a time) sets it once and pays one
/// load per sleep. A post that finds the mark replaces it and wakes; posts that find nodes know that a wake-up is on
/// its way.
class inbox {
public:
    /// Held while posting, so that the executor isn't destroyed between a node's hand-over and the wake-up.
    class guard {
    public:
        explicit guard(inbox& box) noexcept : box_(box) { box_.posters_.fetch_add(1, std::memory_order_acquire); }
        ~guard() { box_.posters_.fetch_sub(1, std::memory_order_release); }
        guard(const guard&) = delete;
        guard& operator=(const guard&) = delete;

    private:
        inbox& box_;
    };

    inbox() = default;
    inbox(const inbox&) = delete;
    inbox& operator=(const inbox&) = delete;

    /// Any thread. True when the executor was asleep and must be woken.
    bool push(posted_node& node) noexcept {
        SLUICE_EXPECTS(node.run != nullptr, "post: a node without a function to run");
        posted_node* seen = head_.load(std::memory_order_relaxed);
        do {
            node.next = seen == asleep() ? nullptr : seen;
        } while (!head_.compare_exchange_weak(seen, &node, std::memory_order_acq_rel, std::memory_order_relaxed));
        return seen == asleep();
    }

    // ---- executor thread only ----

    /// Sets the mark; false when there is work instead.
    bool announce_sleep() noexcept {
        if (first_ != nullptr) return false;
        posted_node* seen = head_.load(std::memory_order_acquire);
        if (seen == asleep()) return true;
        return seen == nullptr && head_.compare_exchange_strong(seen, asleep(), std::memory_order_acq_rel);
    }
    /// Removes the mark: posts cost no wake-up from here on.
    void cancel_sleep() noexcept {
        posted_node* seen = head_.load(std::memory_order_relaxed);
        if (seen == asleep()) head_.compare_exchange_strong(seen, nullptr, std::memory_order_relaxed);
    }
    void run_all() noexcept {
        collect();
        while (first_ != nullptr) {
            posted_node* node = first_;
            first_ = node->next;
            node->run(*node); // may end the node's life
        }
    }
    void forget(posted_node& node) noexcept {
        collect();
        for (posted_node** at = &first_; *at != nullptr; at = &(*at)->next) {
            if (*at != &node) continue;
            *at = node.next;
            return;
        }
    }
    /// Waits until no thread is inside a post. Bounded: posting never blocks.
    void close() noexcept {
        while (posters_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    }

    void count_wake() noexcept { wakes_.fetch_add(1, std::memory_order_relaxed); }
    std::uint64_t wakes() const noexcept { return wakes_.load(std::memory_order_relaxed); }

private:
    posted_node* asleep() noexcept { return &asleep_; }

    /// Moves what was posted behind what was collected before, oldest first.
    void collect() noexcept {
        posted_node* seen = head_.load(std::memory_order_relaxed);
        if (seen == nullptr || seen == asleep()) return;
        seen = head_.exchange(nullptr, std::memory_order_acquire);
        posted_node* oldest = nullptr;
        while (seen != nullptr) {
            posted_node* next = seen->next;
            seen->next = oldest;
            oldest = seen;
            seen = next;
        }
        posted_node** end = &first_;
        while (*end != nullptr) end = &(*end)->next;
        *end = oldest;
    }

    std::atomic<posted_node*> head_{nullptr};
    std::atomic<std::uint32_t> posters_{0};
    std::atomic<std::uint64_t> wakes_{0};
    posted_node asleep_;
    posted_node* first_ = nullptr; // collected, not yet run
};

} // namespace sluice::detail
