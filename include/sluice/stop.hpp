#pragma once

#include <sluice/contract.hpp>
#include <sluice/export.hpp>

#include <atomic>

namespace sluice {

class executor;
class stop_token;

namespace detail {

/// A piece of work that another thread hands to an executor; it lives in the object that posts it.
struct posted_node {
    posted_node* next = nullptr;
    void (*run)(posted_node&) noexcept = nullptr;
};

/// What a stop request calls. It runs on the executor thread, inside request_stop(): it may start or cancel
/// operations and make coroutines ready, but never resumes one.
struct stop_callback_node {
    // The first three are set when it is linked: every operation has one, and most of them are never stopped.
    stop_callback_node* next;
    stop_callback_node** place; ///< the pointer that points here: the list's head, or the neighbour's `next`
    void (*invoke)(stop_callback_node&) noexcept;
    bool linked = false;
};

struct stop_state {
    bool requested = false;
    stop_callback_node* head = nullptr;

    void link(stop_callback_node& node) noexcept {
        node.next = head;
        node.place = &head;
        if (head != nullptr) head->place = &node.next;
        head = &node;
        node.linked = true;
    }
    static void unlink(stop_callback_node& node) noexcept {
        if (!node.linked) return;
        *node.place = node.next;
        if (node.next != nullptr) node.next->place = node.place;
        node.linked = false;
    }
};

} // namespace detail

/// Asks whether a stop was requested. A token that belongs to no source never is.
///
/// Lifetime: valid while its `stop_source` lives; structured code gets that for free. Thread rule: executor-bound.
class stop_token {
public:
    stop_token() noexcept = default;
    /// Never goes back to false.
    bool stop_requested() const noexcept { return state_ != nullptr && state_->requested; }
    /// Whether it belongs to a source at all.
    bool stop_possible() const noexcept { return state_ != nullptr; }
    /// For awaitables: where callbacks are linked; null without a source.
    detail::stop_state* state() const noexcept { return state_; }

private:
    friend class stop_source;
    explicit stop_token(detail::stop_state* state) noexcept : state_(state) {}
    detail::stop_state* state_ = nullptr;
};

/// Requests a stop of everything that runs under its token: operations in flight are canceled in the kernel, waits
/// end, and each affected `co_await` still resumes exactly once, with `errc::canceled` unless it succeeded first.
/// Never allocates.
///
/// Lifetime: must outlive the tasks that carry its token. Thread rule: made and destroyed on its executor;
/// request_stop() may be called on any thread while the source lives.
class SLUICE_EXPORT stop_source : detail::posted_node, detail::stop_callback_node {
public:
    /// Belongs to the executor of this thread.
    stop_source();
    /// Also stops when `parent` does.
    explicit stop_source(stop_token parent);
    ~stop_source();
    stop_source(const stop_source&) = delete;
    stop_source& operator=(const stop_source&) = delete;

    /// Valid while this source lives.
    stop_token token() noexcept { return stop_token(&state_); }
    /// Executor thread: true once the request has taken effect there.
    bool stop_requested() const noexcept { return state_.requested; }
    /// Idempotent. On another thread than the executor's it is posted and takes effect a moment later.
    void request_stop() noexcept;

private:
    void stop_now() noexcept;

    detail::stop_state state_;
    executor* executor_;
    detail::stop_state* parent_ = nullptr;
    std::atomic<bool> posted_{false};
};

} // namespace sluice
