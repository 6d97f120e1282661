#include "net/tcp_request.hpp"

#include "net/tcp_gather.hpp"
#include "net/tcp_requester.hpp"

#include <algorithm>
#include <cstring>

namespace sluice::net {

using detail::transfer_kind;

namespace {

frame_type request_type(transfer_kind kind, std::uint64_t size) noexcept {
    switch (kind) {
    case transfer_kind::read: return frame_type::read;
    case transfer_kind::write: return frame_type::write;
    case transfer_kind::write_with_immediate: return frame_type::write_immediate;
    case transfer_kind::fetch_add: return frame_type::fetch_add;
    case transfer_kind::compare_swap: return frame_type::compare_swap;
    case transfer_kind::send: return size <= eager_bytes_max ? frame_type::message : frame_type::offer;
    case transfer_kind::receive: break;
    }
    SLUICE_EXPECTS(false, "tcp: a receive is no request to the peer");
    return frame_type::cancel;
}

} // namespace

frame tcp_request::request_frame() const noexcept {
    frame f{.type = request_type(kind, size), .id = id(), .size = size};
    if (kind == transfer_kind::send) return f;
    const remote_region& region = owner->remote.region();
    f.immediate = owner->immediate;
    f.key = region.key;
    f.generation = region.generation;
    f.address = owner->remote.address() + offset;
    f.operand = owner->operand;
    if (kind == transfer_kind::compare_swap) f.size = owner->expected;
    return f;
}

std::span<const std::byte> tcp_request::source() const noexcept {
    if (copied) return std::span(copy_).first(size);
    return owner->source.bytes().subspan(offset, size);
}

void tcp_request::copy_source() noexcept {
    SLUICE_EXPECTS(size <= copy_.size(), "tcp: too long a message to copy");
    if (size > 0) std::memcpy(copy_.data(), owner->source.data(), size);
    copied = true;
}

void tcp_request::show(gather& out, const frame& header, std::size_t bytes) noexcept {
    out.add(header, bytes == 0 ? std::span<const std::byte>() : source().subspan(sent_bytes, bytes), this);
    sent_bytes += bytes;
    ++in_gather;
}

bool tcp_request::emit(gather& out) noexcept {
    if (!started && !canceled) return emit_start(out);
    if (canceled) {
        if (started && !answered && kind == transfer_kind::read) {
            out.add({.type = frame_type::cancel, .id = id()});
        } else if (started && !answered && !committed) {
            committed = true;
            out.add({.type = frame_type::commit, .status = frame_status::canceled, .id = id()});
        }
        requester->settle(*this);
        return false;
    }
    return emit_data(out);
}

/// The first frame, with all of the payload where that is small.
bool tcp_request::emit_start(gather& out) noexcept {
    const frame f = request_frame();
    started = true;
    switch (f.type) {
    case frame_type::write:
    case frame_type::write_immediate:
        committed = size <= inline_write_bytes_max;
        show(out, f, committed ? size : 0);
        return !committed;
    case frame_type::message:
        committed = true;
        show(out, f, size);
        return false;
    case frame_type::offer: show(out, f); return false;
    default: committed = true; show(out, f); return false;
    }
}

bool tcp_request::emit_data(gather& out) noexcept {
    if (committed) return false;
    const std::uint64_t bytes = std::min<std::uint64_t>(size - sent_bytes, data_bytes);
    show(out, {.type = frame_type::data, .id = id(), .address = sent_bytes}, bytes);
    if (sent_bytes < size) return true;
    committed = true;
    show(out, {.type = frame_type::commit, .id = id()});
    return false;
}

void tcp_request::source_released() noexcept {
    SLUICE_EXPECTS(in_gather > 0, "tcp: a frame was released twice");
    --in_gather;
    if (in_gather == 0) requester->settle(*this);
}

std::byte* tcp_request::fill(std::size_t) noexcept {
    if (owner == nullptr || canceled) return nullptr;
    receiving = true;
    return owner->target.data() + offset + received_bytes;
}

void tcp_request::target_released() noexcept {
    receiving = false;
    requester->settle(*this);
}

tcp_request& request_table::acquire(tcp_requester& requester, tcp_lane& lane, transfer_kind kind) {
    SLUICE_EXPECTS(!full(), "tcp: more requests than the table holds");
    std::uint32_t slot = free_;
    if (slot == none) slot = made_++;
    tcp_request& r = table_.at(slot);
    if (slot == free_) free_ = r.next_free;
    const std::uint32_t generation = r.generation + 1;
    static_cast<request_state&>(r) = {};
    r.requester = &requester;
    r.lane = &lane;
    r.slot = slot;
    r.generation = generation;
    r.kind = kind;
    r.sibling = &r;
    if (r.one_sided()) ++one_sided_;
    return r;
}

void request_table::release(tcp_request& r) noexcept {
    SLUICE_EXPECTS(r.active() && r.owner == nullptr && r.memory_free() && !r.queued, "tcp: a request was dropped in use");
    if (r.one_sided()) --one_sided_;
    r.requester = nullptr;
    r.next_free = free_;
    free_ = r.slot;
}

tcp_request* request_table::find(std::uint64_t id) noexcept {
    const std::uint32_t slot = slot_of(id);
    if (slot >= made_) return nullptr;
    tcp_request* r = table_.find(slot);
    return r != nullptr && r->active() && r->id() == id ? r : nullptr;
}

} // namespace sluice::net
