#pragma once

#include <sluice/result.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/tcp_request.hpp"
#include "net/transfer_list.hpp"
#include "net/wire.hpp"

#include <cstdint>

namespace sluice::net {

class tcp_connection;
class tcp_lane;

/// The operations that this end asks of the peer: starts them as numbers are free, takes the answers, gives up.
class tcp_requester {
public:
    explicit tcp_requester(tcp_connection& connection) noexcept : connection_(connection) {}

    /// read, write, fetch_add, compare_swap: now, or when there is room.
    void start(detail::transfer& t) noexcept;
    /// send and write_with_immediate, whose turn it is; there must be room.
    void launch(detail::transfer& t) noexcept;
    bool has_room_for(detail::transfer& t) noexcept;
    void cancel(detail::transfer& t, error why) noexcept;

    // from the peer; errors are broken protocol
    result<tcp_request*> open_reply(tcp_lane& lane, const frame& f);
    result<void> on_end(tcp_lane& lane, const frame& f);
    result<void> on_accept(tcp_lane& lane, const frame& f);

    /// Ends everything, as soon as the memory is free.
    void cancel_all(const error& why) noexcept;
    /// Ends everything: no lane works any more.
    void abandon_all(const error& why) noexcept;
    /// All that was started has been handed to the kernel.
    bool all_left() const noexcept { return leaving_ == 0 && waiting_.empty(); }

    /// Draws the consequences of what has changed about a request.
    void settle(tcp_request& r) noexcept;

private:
    struct spread {
        std::uint32_t first_lane;
        std::uint32_t lanes;
    };
    spread spread_of(const detail::transfer& t) const noexcept;
    bool admissible(const detail::transfer& t, spread s) noexcept;
    void pump() noexcept;
    void give_up(tcp_request& r, const error& why) noexcept;
    void finish_share(tcp_request& r) noexcept;
    error refused(const tcp_request& r, frame_status status) const;

    tcp_connection& connection_;
    transfer_list waiting_;
    std::uint32_t leaving_ = 0;
    std::uint32_t turn_ = 0; // lane of the next operation that may go anywhere
};

/// What `transfer::phase` means here.
enum class tcp_phase : std::uint32_t { none, waits_for_room, waits_for_credit, posted, matched, started };

inline tcp_phase phase_of(const detail::transfer& t) noexcept { return static_cast<tcp_phase>(t.phase); }
inline void set_phase(detail::transfer& t, tcp_phase p) noexcept { t.phase = static_cast<std::uint32_t>(p); }

} // namespace sluice::net
