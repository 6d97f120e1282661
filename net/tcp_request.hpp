#pragma once

#include <sluice/error.hpp>
#include <sluice/transfer_operation.hpp>

#include "net/flow.hpp"
#include "net/slot_table.hpp"
#include "net/wire.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace sluice::net {

class tcp_lane;
class tcp_request;
class tcp_requester;

/// What is known about a request; new for each.
struct request_state {
    tcp_requester* requester = nullptr; ///< null: this record is free
    tcp_lane* lane = nullptr;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    std::uint32_t next_free = 0;

    detail::transfer* owner = nullptr; ///< null: it has been completed
    tcp_request* sibling = nullptr;    ///< ring of the shares of one transfer
    detail::transfer_kind kind{};
    std::uint64_t offset = 0; ///< of this share in the transfer
    std::uint64_t size = 0;
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
    std::uint32_t in_gather = 0; ///< frames in the writer's hands that show our memory
    bool receiving = false;      ///< the reader fills our memory
    bool started = false;        ///< the first frame is out
    bool accepted = false;       ///< the peer wants the data of an offered message
    bool canceled = false;
    bool committed = false;      ///< nothing more is to be sent
    bool answered = false;
    bool leaving = false;        ///< counted by the requester as not all sent
    bool copied = false;         ///< the message lies in `copy`
    error why{std::error_code{}}; ///< first failure
};

/// An operation of ours under way on one lane: a transfer, or its share where a large one is spread over several lanes.
/// The record outlives the transfer when that gave up, until the peer has said its last word about the id.
class tcp_request final : public flow, public request_state {
public:
    /// A message up to this size is copied, so that its sender need not wait until it has left.
    static constexpr std::size_t copied_bytes_max = 128;

    bool emit(gather& out) noexcept override;
    void source_released() noexcept override;
    std::byte* fill(std::size_t bytes) noexcept override;
    void target_released() noexcept override;
    void filled(std::size_t bytes) noexcept override { received_bytes += bytes; }
    bool withdrawn() const noexcept override { return canceled; }

    bool active() const noexcept { return requester != nullptr; }
    std::uint64_t id() const noexcept { return make_id(slot, generation); }
    bool one_sided() const noexcept { return kind != detail::transfer_kind::send; }
    bool memory_free() const noexcept { return in_gather == 0 && !receiving; }
    /// The peer has nothing more to say.
    bool over() const noexcept { return answered || (canceled && !started); }
    /// Keeps the message here; the transfer is through with it.
    void copy_source() noexcept;

private:
    frame request_frame() const noexcept;
    bool emit_start(gather& out) noexcept;
    bool emit_data(gather& out) noexcept;
    std::span<const std::byte> source() const noexcept;
    void show(gather& out, const frame& header, std::size_t bytes = 0) noexcept;

    std::array<std::byte, copied_bytes_max> copy_;
};

/// The requests of one lane, by number. Low numbers are used first.
class request_table {
public:
    explicit request_table(std::uint32_t capacity) noexcept : table_(capacity) {}

    bool full() const noexcept { return free_ == none && made_ == table_.capacity(); }
    std::uint32_t one_sided() const noexcept { return one_sided_; }
    tcp_request& acquire(tcp_requester& requester, tcp_lane& lane, detail::transfer_kind kind);
    void release(tcp_request& r) noexcept;
    /// The active request of this id, or null.
    tcp_request* find(std::uint64_t id) noexcept;
    template <class Visit>
    void for_each_active(Visit visit) {
        table_.for_each([&](tcp_request& r) {
            if (r.active()) visit(r);
        });
    }

private:
    static constexpr std::uint32_t none = 0xffffffff;

    slot_table<tcp_request> table_;
    std::uint32_t made_ = 0;
    std::uint32_t free_ = none;
    std::uint32_t one_sided_ = 0;
};

} // namespace sluice::net
