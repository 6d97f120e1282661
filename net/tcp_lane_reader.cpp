#include "net/tcp_connection.hpp"
#include "net/tcp_lane.hpp"
#include "net/tcp_socket.hpp"

#include <sluice/detail/frame_allocator.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::net {

background tcp_lane::read_loop() {
    for (;;) {
        if (sink_.left_bytes == 0 && !parse()) break;
        if (shut_) break;
        const bool whole = sink_.left_bytes > 0;
        receive_request next(socket_.get(), next_target(), whole ? MSG_WAITALL : 0);
        receiving_ = &next;
        const std::int32_t result = co_await next;
        receiving_ = nullptr;
        if (!received(result)) break;
    }
    release_target();
    reader_done_ = true;
    connection_.loop_ended();
}

/// Handles what lies in the buffer, until it holds no whole frame or a large payload begins. False ends the reader.
bool tcp_lane::parse() noexcept {
    while (!shut_ && sink_.left_bytes == 0 && filled_ - consumed_ >= frame_header_bytes) {
        const std::byte* at = buffer().data() + consumed_;
        const auto header = decode(std::span<const std::byte, frame_header_bytes>(at, frame_header_bytes));
        if (!header) {
            connection_.fail(header.error());
            return false;
        }
        if (header->payload_bytes > eager_bytes_max) {
            consumed_ += frame_header_bytes;
            if (!begin_payload(*header)) return false;
            continue;
        }
        const std::size_t whole = frame_header_bytes + header->payload_bytes;
        if (filled_ - consumed_ < whole) break;
        consumed_ += whole;
        if (exact_ > 0) --exact_;
        if (!connection_.on_frame(*this, *header, {at + frame_header_bytes, header->payload_bytes})) return false;
    }
    return !shut_;
}

bool tcp_lane::begin_payload(const frame& header) noexcept {
    auto owner = connection_.open_payload(*this, header);
    if (!owner) {
        connection_.fail(owner.error());
        return false;
    }
    exact_ = exact_headers;
    sink_.owner = *owner;
    sink_.left_bytes = sink_.total_bytes = header.payload_bytes;
    sink_.target = sink_.owner->fill(header.payload_bytes);
    const std::size_t here = std::min(sink_.left_bytes, filled_ - consumed_);
    if (sink_.target != nullptr) {
        std::memcpy(sink_.target, buffer().data() + consumed_, here);
        connection_.count_copy(here);
    }
    consumed_ += here;
    take_payload(here);
    return true;
}

void tcp_lane::take_payload(std::size_t bytes) noexcept {
    if (sink_.target != nullptr) sink_.target += bytes;
    sink_.left_bytes -= bytes;
    if (sink_.left_bytes > 0) return;
    release_target();
    scratch_.reset();
    std::exchange(sink_.owner, nullptr)->filled(sink_.total_bytes);
}

void tcp_lane::release_target() noexcept {
    if (std::exchange(sink_.target, nullptr) != nullptr) sink_.owner->target_released();
}

std::span<std::byte> tcp_lane::next_target() noexcept {
    if (sink_.left_bytes > 0) {
        if (sink_.target != nullptr) return {sink_.target, sink_.left_bytes};
        if (scratch_ == nullptr) scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes);
        return {scratch_.get(), std::min(sink_.left_bytes, scratch_bytes)};
    }
    fit_buffer(filled_ - consumed_);
    std::size_t wanted = buffer().size() - filled_;
    if (exact_ > 0 && filled_ < frame_header_bytes) wanted = frame_header_bytes - filled_;
    return buffer().subspan(filled_, wanted);
}

/// Brings the bytes of an unfinished frame to the front. Behind a full buffer there is more: then one large enough for
/// many frames takes its place, since a receive a frame costs more than all the rest. When all is handled it goes, and
/// waiting for the next frame takes the small one.
void tcp_lane::fit_buffer(std::size_t rest) noexcept {
    std::byte* const unfinished = buffer().data() + consumed_;
    if (grown_ == nullptr && backlog_ && exact_ == 0) {
        auto* const larger = static_cast<std::byte*>(detail::allocate_frame(grown_bytes));
        std::memcpy(larger, unfinished, rest);
        grown_ = larger;
    } else if (grown_ != nullptr && !backlog_ && rest == 0) {
        release_grown();
    } else if (consumed_ != 0 && rest != 0) {
        std::memmove(buffer().data(), unfinished, rest);
    }
    backlog_ = false;
    consumed_ = 0;
    filled_ = rest;
}

void tcp_lane::release_grown() noexcept {
    if (std::byte* const gone = std::exchange(grown_, nullptr); gone != nullptr) detail::free_frame(gone, grown_bytes);
}

/// False ends the reader.
bool tcp_lane::received(std::int32_t result) noexcept {
    if (shut_) return false;
    if (result > 0) {
        const auto bytes = static_cast<std::size_t>(result);
        if (sink_.left_bytes == 0) {
            filled_ += bytes;
            backlog_ = filled_ == buffer().size();
        } else {
            take_payload(bytes);
        }
    } else if (result != -ECANCELED && result != -EINTR && result != -EAGAIN) {
        connection_.stream_ended(*this, result);
        return false;
    }
    if (sink_.target != nullptr && sink_.owner->withdrawn()) release_target();
    return !shut_;
}

} // namespace sluice::net
