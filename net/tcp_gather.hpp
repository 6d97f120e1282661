#pragma once

#include "net/flow.hpp"
#include "net/wire.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/uio.h>
#include <vector>

namespace sluice::net {

/// The frames of one sendmsg: headers by value, payload where it lies. It is sent to its end once begun. Memory that is
/// wanted back meanwhile is replaced by zeros in data and reply frames, so that the stream stays in step, and the end or
/// commit that follows says so; in frames that are whole by themselves it is replaced by a copy.
class gather {
public:
    static constexpr std::size_t frames_max = 32; // with the small buffer they are most of what an idle connection costs
    static constexpr std::size_t bytes_wanted = 1 << 20; ///< no further frame is taken beyond

    bool has_room() const noexcept { return count_ + 2 <= frames_max && bytes_ < bytes_wanted; }
    /// Room for one more flow and one of bulk.
    bool has_room_beside_bulk() const noexcept { return count_ + 4 <= frames_max && bytes_ < bytes_wanted / 2; }
    bool done() const noexcept { return first_ == count_; }
    void clear() noexcept;

    /// `owner` is told when the payload is free again; `tag` names whose memory it is, for withdraw().
    void add(frame header, std::span<const std::byte> payload = {}, flow* owner = nullptr,
             const void* tag = nullptr) noexcept;

    /// What is left to send, as far as one call can take it.
    std::span<iovec> segments() noexcept;
    /// The kernel took this many bytes, and holds none of the memory now.
    void sent(std::size_t bytes) noexcept;
    /// Whether there is memory under `tag` that is not known to be sent.
    bool holds(const void* tag) const noexcept;
    /// Gives it back, when the kernel holds none of it.
    void withdraw(const void* tag);
    /// The same for every owner that is withdrawn().
    void withdraw_owners();

private:
    struct entry {
        const std::byte* payload; ///< null: zeros
        flow* owner;
        const void* tag;
        std::uint32_t payload_bytes;
        std::uint32_t total() const noexcept { return static_cast<std::uint32_t>(frame_header_bytes) + payload_bytes; }
    };
    void segment(std::size_t& used, const std::byte* data, std::size_t bytes) noexcept;
    bool segment_zeros(std::size_t& used, std::size_t bytes) noexcept;
    void withdraw_entry(std::size_t index, frame_status reason);
    static void release(entry& e) noexcept;

    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
    std::size_t first_ = 0;  ///< the first entry that is not sent wholly
    std::size_t offset_ = 0; ///< how much of it is
    std::vector<std::unique_ptr<std::byte[]>> copies_;
    std::array<entry, frames_max> entries_;
    std::array<std::array<std::byte, frame_header_bytes>, frames_max> headers_;
    std::array<iovec, 2 * frames_max> segments_;
};

} // namespace sluice::net
