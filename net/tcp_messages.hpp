#pragma once

#include <sluice/result.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/flow.hpp"
#include "net/ring_queue.hpp"
#include "net/tcp_serving.hpp"
#include "net/transfer_list.hpp"
#include "net/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::net {

class tcp_connection;

/// Messages and immediates, both ways. The sender spends a credit on each and waits when it has none; the receiver
/// gives credits back as receives take messages. All of them travel on the first lane, in order; the inbox keeps those
/// that no receive was there for.
class tcp_messages final : public flow {
public:
    tcp_messages(tcp_connection& connection, std::uint32_t credits) noexcept;

    /// send and write_with_immediate.
    void start_send(detail::transfer& t) noexcept;
    void start_receive(detail::transfer& t) noexcept;
    void cancel(detail::transfer& t, error why) noexcept;
    /// A send was launched and given up before a byte of it left: the peer never saw its credit.
    void take_back_credit() noexcept;
    /// Starts what waits, as far as credits and room allow.
    void pump() noexcept;
    bool all_left() const noexcept { return sends_.empty(); }

    // from the peer; errors are broken protocol
    result<void> on_message(const frame& f, std::span<const std::byte> payload);
    result<void> on_offer(tcp_serving& s);
    result<void> on_credit(const frame& f);
    /// The place of an immediate whose write has begun.
    result<std::size_t> reserve_immediate();
    void end_immediate(std::size_t position, std::uint32_t immediate, std::uint64_t size, bool ok) noexcept;

    /// All of an offered message is here, or it was given up.
    void offer_ended(tcp_serving& s) noexcept;
    void receive_released(tcp_serving& s) noexcept;

    /// No more will come: what is in the inbox can still be received, everything else ends.
    void close(const error& why) noexcept;

    /// Puts out the credits that are due.
    bool emit(gather& out) noexcept override;

private:
    struct entry {
        enum class kind : std::uint8_t { message, offer, immediate };
        kind what = kind::message;
        bool ready = false;   ///< an immediate: its write is done
        bool dropped = false; ///< it is no message any more
        std::uint32_t immediate = 0;
        std::uint64_t size = 0;
        tcp_serving* offer = nullptr;
    };
    result<std::size_t> admit(const entry& e);
    void deliver() noexcept;
    void deliver_to(detail::transfer& receive, const entry& e) noexcept;
    void finish_receive(detail::transfer& receive, std::uint64_t size) noexcept;
    void too_long(detail::transfer& receive, std::uint64_t size) noexcept;
    void return_credit() noexcept;

    tcp_connection& connection_;
    transfer_list sends_;    // wait for a credit
    transfer_list receives_; // wait for a message
    std::uint32_t credits_;  // that we may spend
    const std::uint32_t credits_max_;
    std::uint32_t held_ = 0;      // of the peer's credits: spent and not given back
    std::uint32_t returnable_ = 0; // of these: taken by receives
    bool closed_ = false;
    ring_queue<entry> inbox_;
    byte_ring bytes_; // of the messages in the inbox
};

} // namespace sluice::net
