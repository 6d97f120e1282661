#pragma once

#include <sluice/result.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/ring_queue.hpp"
#include "net/transfer_list.hpp"
#include "rdma/frame.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/staging.hpp"

#include <cstdint>

namespace sluice::rdma {

class rdma_connection;

/// Frames on their way to the peer, on the first lane and in order. Each but `credit` spends a slot of the peer's receive
/// queue, which it gives back as soon as it has looked at the frame; each message and each immediate spends a credit too,
/// which comes back when a receive has taken it. Large messages are offered first and travel in fragments once a receive
/// waits for them.
class outbox {
public:
    outbox(rdma_connection& connection, std::uint32_t slots, std::uint32_t credits) noexcept;

    /// send and write_with_immediate.
    void start(detail::transfer& t) noexcept;
    void cancel(detail::transfer& t, error why) noexcept;
    /// A frame without payload, before all messages that wait; nothing but the peer's goodbye is answered after ours.
    /// `on` is its lane.
    void control(const frame& f, std::uint32_t on = 0);
    void on_work_done(detail::transfer* t, const work& w, const completion& how) noexcept;
    /// Sends as far as slots, credits and the send queue allow.
    void pump() noexcept;
    /// Everything that was started here before has been put into the send queue.
    bool all_left() const noexcept { return sends_.empty() && streams_.empty() && control_.empty(); }
    /// No more messages: what has no work in flight ends with `why`, the rest when it comes back.
    void close(const error& why) noexcept;
    /// No more of anything.
    void shut() noexcept;

    // from the peer; errors are broken protocol
    result<void> on_returned(const frame& f);
    result<void> on_accept(const frame& f);
    /// Tells the peer that what it shared is known. Errors: it asks for more of these than it takes.
    result<void> acknowledge(const frame& shared);

    // from the inbox
    /// Of a frame that came. Errors: the peer has spent more than it was given.
    result<void> owe_slot();
    void owe_credit() noexcept { ++credits_due_; }

private:
    struct small_talk {
        frame f;
        std::uint32_t on = 0;
    };
    bool emit_one();
    void pay(frame& f) noexcept;
    void emit(frame f, detail::transfer* owner, std::uint32_t on = 0);
    void emit_payload(frame f, detail::transfer& t, const std::byte* data);
    bool emit_send(detail::transfer& t);
    bool emit_written(detail::transfer& t);
    bool emit_stream();
    void give_back() noexcept;
    bool needs_staging(const detail::transfer& t, std::size_t bytes) const noexcept;
    void end(detail::transfer& t) noexcept;

    rdma_connection& connection_;
    net::ring_queue<small_talk> control_;
    net::transfer_list sends_;                     // not all of it left
    net::ring_queue<detail::transfer*> offers_;    // null: given up
    net::ring_queue<detail::transfer*> streams_;   // accepted, in order; null: given up
    staging staging_;
    std::uint32_t slots_;         // of the peer, that we may spend
    const std::uint32_t slots_max_;
    std::uint32_t credits_;       // likewise
    const std::uint32_t credits_max_;
    std::uint32_t slots_due_ = 0; // the peer's, to be given back
    std::uint32_t credits_due_ = 0;
    std::uint32_t acknowledgements_ = 0; // in control_
    static constexpr std::uint32_t acknowledgements_max = 1024; // a peer that gives slots back lets a few wait
    bool shut_ = false;
};

} // namespace sluice::rdma
