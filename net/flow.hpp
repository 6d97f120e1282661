#pragma once

#include <cstddef>
#include <utility>

namespace sluice::net {

class gather;

/// Something that has frames to send on a lane and memory that the lane's socket reads or fills: an operation of ours,
/// one of the peer's that is served here, or the small talk of the connection. It lives in a table and is queued by
/// address.
class flow {
public:
    /// Puts what is due into `out`, at least one and at most two frames, and at most one of them large. True: there is
    /// more, and it is this flow's turn again after the others.
    virtual bool emit(gather& out) noexcept = 0;
    /// The kernel is through with the payload of one frame that was put out with this flow as its owner.
    virtual void source_released() noexcept {}
    /// Payload of this many bytes comes: where it goes, or null to throw it away. target_released() follows if it goes
    /// somewhere, once nothing more is written there, and filled() once all of it is off the stream.
    virtual std::byte* fill(std::size_t) noexcept { return nullptr; }
    virtual void target_released() noexcept {}
    virtual void filled(std::size_t) noexcept {}
    /// It wants its memory back: the rest of what was announced is sent as zeros, or received and thrown away.
    virtual bool withdrawn() const noexcept { return false; }

    flow* next_queued = nullptr;
    bool queued = false;

protected:
    ~flow() = default;
};

/// First in, first out; a flow is in at most one queue, once.
class flow_queue {
public:
    bool empty() const noexcept { return head_ == nullptr; }
    void push(flow& f) noexcept {
        f.queued = true;
        f.next_queued = nullptr;
        (tail_ == nullptr ? head_ : tail_->next_queued) = &f;
        tail_ = &f;
    }
    flow& pop() noexcept {
        flow& f = *head_;
        head_ = std::exchange(f.next_queued, nullptr);
        if (head_ == nullptr) tail_ = nullptr;
        f.queued = false;
        return f;
    }

private:
    flow* head_ = nullptr;
    flow* tail_ = nullptr;
};

} // namespace sluice::net
