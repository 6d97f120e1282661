#pragma once

#include "rdma/verbs.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace sluice::bench::raw {

/// An RDMA device without hardware, and without data: it takes every work request and has ended it by the time it is
/// polled. So what is left to measure is what stands in front of a device. The bare loop reaches it through the operations
/// of its context, as ibv_post_send() does; ours through the table of rdma/verbs.hpp, which it puts in.
///
/// Its peer is as simple: it has said nothing but what deliver() says for it, and it acknowledges a goodbye.
///
/// Lifetime: one at a time, until all of rdma/ is gone. Thread rule: used by one thread at a time.
class willing_device {
public:
    willing_device();
    ~willing_device();
    willing_device(const willing_device&) = delete;
    willing_device& operator=(const willing_device&) = delete;

    ibv_context* context() noexcept { return &context_; }
    /// A frame of the peer, for the queue pair that was made last.
    void deliver(std::span<const std::byte> frame);

    ///@{
    /// For the bare loop: a queue pair whose work completes in `bare_cq()`.
    ibv_cq* bare_cq() noexcept { return &bare_cq_.verbs; }
    ibv_qp* bare_qp() noexcept { return &bare_qp_.verbs; }
    ///@}

private:
    struct calls;
    /// A ring, since a std::deque costs more than the rest of a post.
    struct queue {
        static constexpr std::uint32_t entries = 1024; // more than any loop has in flight
        ibv_cq verbs{};
        std::uint32_t head = 0;
        std::uint32_t tail = 0;
        struct ended {
            std::uint64_t wr_id;
            std::uint32_t qp_num;
            std::uint32_t bytes;
        };
        ended ring[entries]{};
        void push(const ended& e);
    };
    struct pair {
        ibv_qp verbs{};
        queue* sends = nullptr;
        queue* receives = nullptr;
    };

    static willing_device& the() noexcept;
    static int post(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) noexcept;
    static int poll(ibv_cq* cq, int entries, ibv_wc* into) noexcept;
    rdma::verbs table() const noexcept;
    std::uint32_t next_number() noexcept { return ++numbers_; }

    ibv_device about_{};
    ibv_context context_{};
    ibv_context* list_[2] = {&context_, nullptr}; // of all devices
    ibv_pd pd_{};
    ibv_srq srq_{};
    ibv_comp_channel channel_{};
    rdma_event_channel cm_channel_{};
    std::deque<std::unique_ptr<queue>> queues_;
    std::deque<std::unique_ptr<pair>> pairs_;
    std::deque<ibv_recv_wr> receives_;
    std::deque<ibv_sge> slots_; // of receives_
    std::uint32_t numbers_ = 16;
    queue bare_cq_;
    pair bare_qp_;
    rdma::verbs table_{};
};

} // namespace sluice::bench::raw
