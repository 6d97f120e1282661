#include "rdma/frame.hpp"

#include <sluice/contract.hpp>
#include <sluice/memory.hpp>

#include "rdma/bytes.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace sluice::rdma {

namespace {

constexpr std::uint8_t access_known =
    static_cast<std::uint8_t>(access::remote_read | access::remote_write | access::remote_atomic);

/// What a frame may say beside the credits, which travel on all of them.
struct layout {
    frame_type type;
    const char* name;
    std::uint16_t payload_least;
    std::uint16_t payload_most;
    bool immediate;
    bool key;
    bool size;
    bool region; ///< address and access bits
};
constexpr auto whole_slot = static_cast<std::uint16_t>(slot_payload_bytes);
constexpr std::array layouts{
    layout{frame_type::ready, "ready", 0, 0, false, false, false, false},
    layout{frame_type::message, "message", 0, whole_slot, false, false, false, false},
    layout{frame_type::offer, "offer", 0, 0, false, false, true, false},
    layout{frame_type::accept, "accept", 0, 0, false, false, true, false},
    layout{frame_type::fragment, "fragment", 1, whole_slot, false, false, false, false},
    layout{frame_type::abandon, "abandon", 0, 0, false, false, false, false},
    layout{frame_type::immediate, "immediate", 0, 0, true, false, true, false},
    layout{frame_type::shared, "shared", 0, 0, true, true, true, true},
    layout{frame_type::shared_ack, "shared_ack", 0, 0, true, true, false, false},
    layout{frame_type::revoked, "revoked", 0, 0, true, true, false, false},
    layout{frame_type::credit, "credit", 0, 0, false, false, false, false},
    layout{frame_type::goodbye, "goodbye", 0, 0, false, false, false, false},
    layout{frame_type::goodbye_ack, "goodbye_ack", 0, 0, false, false, false, false},
};
static_assert(slot_payload_bytes <= std::numeric_limits<std::uint16_t>::max());

constexpr bool in_order() {
    for (std::size_t i = 0; i < layouts.size(); ++i)
        if (static_cast<std::size_t>(layouts[i].type) != i + 1) return false;
    return true;
}
static_assert(in_order(), "a layout is found by its number");
static_assert(static_cast<std::size_t>(frame_type::goodbye_ack) == layouts.size());

error broken(const std::string& what, std::uint64_t value, const std::string& allowed) {
    return {make_error_code(errc::protocol_error),
            "rdma frame: " + what + " = " + std::to_string(value) + ", allowed is " + allowed};
}

/// The type's own fields: right ones in place, others 0.
result<void> check(const layout& of, const frame& f) {
    const auto foreign = [&](const char* field, std::uint64_t value) {
        return broken(std::string(field) + " of " + of.name, value, "0");
    };
    if (f.payload_bytes < of.payload_least || f.payload_bytes > of.payload_most)
        return broken(std::string("payload of ") + of.name, f.payload_bytes,
                      std::to_string(of.payload_least) + ".." + std::to_string(of.payload_most));
    if (!of.immediate && f.immediate != 0) return foreign("immediate", f.immediate);
    if (!of.key && f.key != 0) return foreign("key", f.key);
    if (!of.size && f.size != 0) return foreign("size", f.size);
    if (!of.region && f.address != 0) return foreign("address", f.address);
    if (!of.region && f.access_bits != 0) return foreign("access", f.access_bits);
    if (of.region && (f.access_bits & ~access_known) != 0)
        return broken("access of shared", f.access_bits, "0.." + std::to_string(access_known));
    if (of.region && f.size > std::numeric_limits<std::uint64_t>::max() - f.address)
        return broken("size of shared", f.size, "what lies between its address and the end of the address space");
    if (f.type == frame_type::credit && f.slots == 0 && f.credits == 0)
        return broken("slots and credits of credit", 0, "1..65535 for one of them");
    return {};
}

} // namespace

const char* to_string(frame_type type) noexcept {
    const auto number = static_cast<std::size_t>(type);
    return number == 0 || number > layouts.size() ? "unknown" : layouts[number - 1].name;
}

std::array<std::byte, frame::header_bytes> frame::encode() const noexcept {
    SLUICE_DEBUG_EXPECTS(static_cast<std::size_t>(type) - 1 < layouts.size(), "rdma frame: encoded without a type");
    SLUICE_EXPECTS(payload_bytes <= slot_payload_bytes, "rdma frame: more payload than a slot carries");
    std::array<std::byte, header_bytes> into{};
    put(into, 0, static_cast<std::uint8_t>(type));
    put(into, 1, access_bits);
    put(into, 2, slots);
    put(into, 4, credits);
    put(into, 6, payload_bytes);
    put(into, 8, immediate);
    put(into, 12, key);
    put(into, 16, size);
    put(into, 24, address);
    return into;
}

result<frame> frame::decode(std::span<const std::byte> bytes) {
    if (bytes.size() < header_bytes)
        return broken("length", bytes.size(), std::to_string(header_bytes) + " bytes of header, and its payload");
    const auto type = get<std::uint8_t>(bytes, 0);
    if (type == 0 || type > layouts.size()) return broken("type", type, "1.." + std::to_string(layouts.size()));
    frame f;
    f.type = static_cast<frame_type>(type);
    f.access_bits = get<std::uint8_t>(bytes, 1);
    f.slots = get<std::uint16_t>(bytes, 2);
    f.credits = get<std::uint16_t>(bytes, 4);
    f.payload_bytes = get<std::uint16_t>(bytes, 6);
    f.immediate = get<std::uint32_t>(bytes, 8);
    f.key = get<std::uint32_t>(bytes, 12);
    f.size = get<std::uint64_t>(bytes, 16);
    f.address = get<std::uint64_t>(bytes, 24);
    if (auto good = check(layouts[type - 1U], f); !good) return good.error();
    if (bytes.size() - header_bytes != f.payload_bytes)
        return broken("payload_bytes", f.payload_bytes,
                      std::to_string(bytes.size() - header_bytes) + ", which is what came");
    return f;
}

} // namespace sluice::rdma
