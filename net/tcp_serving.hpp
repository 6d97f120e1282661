#pragma once

#include <sluice/error.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/flow.hpp"
#include "net/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace sluice::net {

class tcp_lane;
class tcp_connection;
struct tcp_share;

/// An operation of the peer that is served here. Numbered by the peer; free again once its last frame is out or in.
class tcp_serving final : public flow {
public:
    enum class kind : std::uint8_t {
        none,   ///< free
        read,   ///< we send the payload
        write,  ///< we receive it
        atomic, ///< done at once, only the answer is left
        message ///< an offered message; `receive` is set once one was there for it
    };

    bool emit(gather& out) noexcept override;
    std::byte* fill(std::size_t bytes) noexcept override;
    void target_released() noexcept override;
    void filled(std::size_t bytes) noexcept override;
    bool withdrawn() const noexcept override;

    bool active() const noexcept { return what != kind::none; }
    void begin(tcp_connection& c, tcp_lane& l, kind k, const frame& request) noexcept;
    /// Ends it without a word.
    void end() noexcept { what = kind::none; share = nullptr; }

    tcp_connection* connection = nullptr;
    tcp_lane* lane = nullptr;
    kind what = kind::none;
    frame_status status = frame_status::ok;
    std::uint64_t id = 0;
    tcp_share* share = nullptr; ///< whose memory it is; null: no memory is touched
    std::byte* memory = nullptr;
    std::uint64_t size = 0;
    std::uint64_t done_bytes = 0;
    std::uint64_t value = 0;     ///< atomics: the value before
    std::uint64_t inbox_position = 0;
    std::uint32_t immediate = 0;
    bool has_immediate = false;

    // of messages
    detail::transfer* receive = nullptr;
    bool receive_canceled = false;
    bool receiving = false; ///< the reader fills its memory
    bool accepted = false;   ///< accept is out, or queued
    bool finished = false;   ///< only end is still to be sent
    error why{std::error_code{}};

private:
    bool emit_read(gather& out) noexcept;
    bool emit_end(gather& out, const void* tag = nullptr) noexcept;
};

} // namespace sluice::net
