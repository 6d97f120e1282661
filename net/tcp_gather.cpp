#include "net/tcp_gather.hpp"

#include <sluice/contract.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::net {

namespace {

// Read by the kernel only. Not const, so that it takes no room in the binary.
std::array<std::byte, 64 * 1024> zeros{};

} // namespace

void gather::clear() noexcept {
    SLUICE_EXPECTS(done(), "tcp: a half-sent frame was dropped");
    count_ = bytes_ = first_ = offset_ = 0;
    copies_.clear();
}

void gather::add(frame header, std::span<const std::byte> payload, flow* owner, const void* tag) noexcept {
    SLUICE_EXPECTS(count_ < frames_max, "tcp: more frames than were asked for");
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    encode(header, headers_[count_]);
    entries_[count_] = {.payload = payload.data(), .owner = owner, .tag = tag, .payload_bytes = header.payload_bytes};
    bytes_ += entries_[count_].total();
    ++count_;
}

void gather::segment(std::size_t& used, const std::byte* data, std::size_t bytes) noexcept {
    if (used > 0) {
        iovec& last = segments_[used - 1];
        if (static_cast<const std::byte*>(last.iov_base) + last.iov_len == data) { // headers lie one after another
            last.iov_len += bytes;
            return;
        }
    }
    segments_[used++] = {.iov_base = const_cast<std::byte*>(data), .iov_len = bytes};
}

bool gather::segment_zeros(std::size_t& used, std::size_t bytes) noexcept {
    while (bytes > 0) {
        if (used == segments_.size()) return false;
        const std::size_t part = std::min(bytes, zeros.size());
        segments_[used++] = {.iov_base = zeros.data(), .iov_len = part};
        bytes -= part;
    }
    return true;
}

std::span<iovec> gather::segments() noexcept {
    SLUICE_EXPECTS(!done(), "tcp: nothing to send");
    std::size_t used = 0;
    std::size_t skip = offset_;
    for (std::size_t i = first_; i < count_ && used + 2 <= segments_.size(); ++i) {
        const entry& e = entries_[i];
        if (skip < frame_header_bytes) segment(used, headers_[i].data() + skip, frame_header_bytes - skip);
        const std::size_t from = skip < frame_header_bytes ? 0 : skip - frame_header_bytes;
        skip = 0;
        if (from == e.payload_bytes) continue;
        if (e.payload != nullptr) segment(used, e.payload + from, e.payload_bytes - from);
        else if (!segment_zeros(used, e.payload_bytes - from)) break;
    }
    return {segments_.data(), used};
}

void gather::release(entry& e) noexcept {
    flow* owner = std::exchange(e.owner, nullptr);
    e.tag = nullptr;
    if (owner != nullptr) owner->source_released();
}

void gather::sent(std::size_t bytes) noexcept {
    offset_ += bytes;
    while (first_ < count_ && offset_ >= entries_[first_].total()) {
        entry& e = entries_[first_++];
        offset_ -= e.total();
        release(e);
    }
    SLUICE_EXPECTS(first_ < count_ || offset_ == 0, "tcp: the kernel sent more than it was given");
}

bool gather::holds(const void* tag) const noexcept {
    return std::any_of(entries_.begin() + static_cast<std::ptrdiff_t>(first_),
                       entries_.begin() + static_cast<std::ptrdiff_t>(count_),
                       [tag](const entry& e) { return e.tag == tag; });
}

void gather::withdraw_entry(std::size_t index, frame_status reason) {
    entry& e = entries_[index];
    const auto type = static_cast<frame_type>(headers_[index][0]);
    if (type == frame_type::end || type == frame_type::commit) {
        const bool half_sent = index == first_ && offset_ > 0;
        if (!half_sent) set_status(headers_[index], reason);
    } else if (type == frame_type::data || type == frame_type::reply) {
        e.payload = nullptr;
    } else if (e.payload_bytes > 0) {
        copies_.push_back(std::make_unique<std::byte[]>(e.payload_bytes));
        std::memcpy(copies_.back().get(), e.payload, e.payload_bytes);
        e.payload = copies_.back().get();
    }
    release(e);
}

void gather::withdraw(const void* tag) {
    for (std::size_t i = first_; i < count_; ++i)
        if (entries_[i].tag == tag) withdraw_entry(i, frame_status::access_denied);
}

void gather::withdraw_owners() {
    for (std::size_t i = first_; i < count_; ++i)
        if (entries_[i].owner != nullptr && entries_[i].owner->withdrawn()) withdraw_entry(i, frame_status::canceled);
}

} // namespace sluice::net
