#pragma once

#include <sluice/result.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/ring_queue.hpp"
#include "net/transfer_list.hpp"
#include "rdma/frame.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::rdma {

class rdma_connection;

/// Messages and immediates that came, and the receives that wait for them, both in order. What no receive was there for
/// is kept, as far as the peer has credits.
class inbox {
public:
    inbox(rdma_connection& connection, std::uint32_t credits) noexcept
        : connection_(connection), credits_max_(credits) {}

    void start(detail::transfer& t) noexcept;
    void cancel(detail::transfer& t, error why) noexcept;
    /// The data of offers will not come any more: they are no messages.
    void drop_offers() noexcept;
    /// No more will come: what is here can still be received, everything else ends with the connection's cause.
    void close() noexcept;

    // from the peer; errors are broken protocol
    result<void> on_message(std::span<const std::byte> payload);
    result<void> on_offer(const frame& f);
    result<void> on_immediate(const frame& f);
    result<void> on_fragment(std::span<const std::byte> payload);
    result<void> on_abandon();

private:
    struct entry {
        frame_type what = frame_type::message; ///< message, offer or immediate
        std::uint32_t immediate = 0;
        std::uint64_t size = 0;
    };
    /// A large message that was asked for.
    struct filling {
        detail::transfer* receive = nullptr; ///< null: given up, the rest is thrown away
        std::uint64_t size = 0;
        std::uint64_t got = 0;
    };
    result<void> admit(const entry& e);
    void deliver() noexcept;
    void deliver_to(detail::transfer& receive, const entry& e) noexcept;
    static void finish(detail::transfer& receive, std::uint64_t size) noexcept;
    static void too_long(detail::transfer& receive, std::uint64_t size) noexcept;
    void taken() noexcept;

    rdma_connection& connection_;
    net::transfer_list receives_;
    net::ring_queue<entry> entries_;
    net::byte_ring bytes_;              // of the messages in entries_
    net::ring_queue<filling> filling_;  // in the order in which they were asked for
    const std::uint32_t credits_max_;
    std::uint32_t held_ = 0; // messages that came and that no receive has taken
    bool closed_ = false;
};

} // namespace sluice::rdma
