#pragma once

#include <sluice/event.hpp>
#include <sluice/result.hpp>
#include <sluice/sleep.hpp>

#include "net/provider.hpp"
#include "net/tcp_agent.hpp"
#include "net/tcp_lane.hpp"
#include "net/tcp_messages.hpp"
#include "net/tcp_requester.hpp"
#include "net/wire.hpp"
#include "runtime/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::net {

/// What the two ends agreed on, and what is known about the other one.
struct tcp_terms {
    std::uint32_t operations_in_flight = 0;
    std::uint32_t receive_credits = 0;
    std::uint32_t message_bytes_max = 0;
    std::uint64_t self = 0; ///< our number in what we share
    std::uint64_t peer = 0; ///< the other end's
    std::string choice;
    std::string local_address;
    std::string peer_address;
};

/// A connection over one or more sockets. This class holds the parts together and decides how it ends: by a goodbye of
/// either side, or by the first failure.
class tcp_connection final : public detail::provider_connection {
public:
    /// Takes the sockets over; the handshake is done.
    tcp_connection(executor& home, const connection_options& options, tcp_terms terms,
                   std::vector<detail::unique_fd> sockets);
    ~tcp_connection() override;

    void start(detail::transfer& t) noexcept override;
    void cancel(detail::transfer& t, error why) noexcept override;
    task<result<shared>> share(region_view memory, access granted) override;
    task<result<void>> close() override;
    task<result<void>> closed() override;
    bool is_open() const noexcept override { return state_ == state::open; }
    sluice::path path() const noexcept override { return sluice::path::tcp; }
    sluice::capabilities capabilities() const noexcept override;
    std::string peer_address() const override { return terms_.peer_address; }
    std::string local_address() const override { return terms_.local_address; }
    std::string choice() const override { return terms_.choice; }
    connection_stats stats() const override;

    // ---- for its parts ----
    struct served_counters {
        std::uint64_t served_operations = 0;
        std::uint64_t served_bytes = 0;
        std::uint64_t refused_operations = 0;
    };
    const tcp_terms& terms() const noexcept { return terms_; }
    std::uint32_t lane_count() const noexcept { return static_cast<std::uint32_t>(lanes_.size()); }
    tcp_lane& lane(std::uint32_t index) noexcept { return *lanes_[index]; }
    tcp_requester& requester() noexcept { return requester_; }
    tcp_messages& messages() noexcept { return messages_; }
    tcp_agent& agent() noexcept { return agent_; }
    served_counters& counters() noexcept { return counters_; }
    void count_copy(std::size_t bytes) noexcept { copied_bytes_ += bytes; }
    /// Why operations end that have no reason of their own.
    error cause() const { return cause_ ? *cause_ : error(errc::closed); }

    // ---- for its lanes ----
    /// A whole frame. False: the reader shall end.
    bool on_frame(tcp_lane& lane, const frame& f, std::span<const std::byte> payload) noexcept;
    /// A frame whose payload is still to come.
    result<flow*> open_payload(tcp_lane& lane, const frame& f);
    /// The connection is broken; the first call decides why.
    void fail(error why) noexcept;
    /// The reader met the end of the stream (0) or a negative errno value.
    void stream_ended(tcp_lane& lane, std::int32_t result) noexcept;
    void sending_failed(tcp_lane& lane, std::int32_t result) noexcept;
    /// A coroutine of a lane is through.
    void loop_ended() noexcept;
    /// Something was sent or given up: perhaps it is time for the goodbye.
    void something_left() noexcept;

private:
    enum class state : std::uint8_t {
        open,
        closing,      ///< close() was called: what was started leaves
        said_goodbye, ///< the peer's acknowledgement is awaited
        peer_left,    ///< the peer said goodbye, we acknowledged
        ending,       ///< the sockets are shut
        down
    };
    struct close_timer : detail::timer_node {
        tcp_connection* owner = nullptr;
    };

    result<void> dispatch(tcp_lane& lane, const frame& f, std::span<const std::byte> payload);
    result<void> place(result<flow*> owner, std::span<const std::byte> payload);
    result<void> check(const detail::transfer& t) const;
    void on_goodbye(tcp_lane& lane) noexcept;
    void on_goodbye_ack(tcp_lane& lane) noexcept;
    bool all_lanes(bool tcp_lane::* flag) const noexcept;
    void begin_close() noexcept;
    void tear_down() noexcept;
    static void on_close_timeout(detail::timer_node& node) noexcept;

    tcp_terms terms_;
    state state_ = state::open;
    std::optional<error> cause_;   // of operations that end now
    std::optional<error> failure_; // why it broke; none after a goodbye
    close_timer close_timer_;
    event down_;
    served_counters counters_;
    std::uint64_t copied_bytes_ = 0;
    tcp_requester requester_;
    tcp_messages messages_;
    tcp_agent agent_;
    std::vector<std::unique_ptr<tcp_lane>> lanes_;
};

} // namespace sluice::net
