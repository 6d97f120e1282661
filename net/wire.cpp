#include "net/wire.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <string_view>

namespace sluice::net {

namespace {

template <std::unsigned_integral T>
void put(std::span<std::byte> bytes, std::size_t offset, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i)
        bytes[offset + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
}

template <std::unsigned_integral T>
T get(std::span<const std::byte> bytes, std::size_t offset) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
        value |= static_cast<std::uint64_t>(std::to_integer<std::uint8_t>(bytes[offset + i])) << (8 * i);
    return static_cast<T>(value);
}

constexpr std::string_view magic = "sluice\r\n";
static_assert(magic.size() == 8);

error broken(const char* field, std::uint64_t value, const char* allowed) {
    return {make_error_code(errc::protocol_error), std::string("frame: ") + field + " = " + std::to_string(value) +
                                                       ", allowed is " + allowed};
}

/// What may follow the header of a frame.
std::uint32_t payload_bytes_max(frame_type type) noexcept {
    switch (type) {
    case frame_type::write:
    case frame_type::write_immediate: return inline_write_bytes_max;
    case frame_type::data:
    case frame_type::reply: return data_bytes_max;
    case frame_type::message: return eager_bytes_max;
    default: return 0;
    }
}

/// `48 54 54 50 ("HTTP")`
std::string quote(std::span<const std::byte> bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string hex;
    std::string text;
    for (const std::byte b : bytes.first(std::min<std::size_t>(bytes.size(), 16))) {
        const auto value = std::to_integer<unsigned>(b);
        if (!hex.empty()) hex += ' ';
        hex += digits[value >> 4];
        hex += digits[value & 15];
        text += value >= 0x20 && value < 0x7f ? static_cast<char>(value) : '.';
    }
    return hex + " (\"" + text + "\")";
}

error no_greeting(std::span<const std::byte> bytes) {
    return {make_error_code(errc::protocol_error),
            "handshake: the peer does not speak sluice's protocol; it sent " + quote(bytes) +
                " where a greeting starts with \"sluice\\r\\n\""};
}

} // namespace

const char* to_string(frame_type type) noexcept {
    switch (type) {
    case frame_type::read: return "read";
    case frame_type::write: return "write";
    case frame_type::write_immediate: return "write_immediate";
    case frame_type::fetch_add: return "fetch_add";
    case frame_type::compare_swap: return "compare_swap";
    case frame_type::offer: return "offer";
    case frame_type::data: return "data";
    case frame_type::commit: return "commit";
    case frame_type::cancel: return "cancel";
    case frame_type::accept: return "accept";
    case frame_type::reply: return "reply";
    case frame_type::end: return "end";
    case frame_type::message: return "message";
    case frame_type::credit: return "credit";
    case frame_type::goodbye: return "goodbye";
    case frame_type::goodbye_ack: return "goodbye_ack";
    }
    return "unknown";
}

void encode(const frame& f, std::span<std::byte, frame_header_bytes> into) noexcept {
    put(into, 0, static_cast<std::uint8_t>(f.type));
    put(into, 1, std::uint8_t{0});
    put(into, 2, static_cast<std::uint16_t>(f.status));
    put(into, 4, f.payload_bytes);
    put(into, 8, f.id);
    put(into, 16, f.key);
    put(into, 24, f.address);
    put(into, 32, f.size);
    put(into, 40, f.operand);
    put(into, 48, f.generation);
    put(into, 52, f.immediate);
}

void set_status(std::span<std::byte, frame_header_bytes> header, frame_status status) noexcept {
    put(header, 2, static_cast<std::uint16_t>(status));
}

result<frame> decode(std::span<const std::byte, frame_header_bytes> from) {
    const auto type = get<std::uint8_t>(from, 0);
    const auto status = get<std::uint16_t>(from, 2);
    if (type == 0 || type > frame_type_max) return broken("type", type, ("1.." + std::to_string(frame_type_max)).c_str());
    if (status > frame_status_max) return broken("status", status, ("0.." + std::to_string(frame_status_max)).c_str());
    frame f;
    f.type = static_cast<frame_type>(type);
    f.status = static_cast<frame_status>(status);
    f.payload_bytes = get<std::uint32_t>(from, 4);
    f.id = get<std::uint64_t>(from, 8);
    f.key = get<std::uint64_t>(from, 16);
    f.address = get<std::uint64_t>(from, 24);
    f.size = get<std::uint64_t>(from, 32);
    f.operand = get<std::uint64_t>(from, 40);
    f.generation = get<std::uint32_t>(from, 48);
    f.immediate = get<std::uint32_t>(from, 52);
    if (const auto flags = get<std::uint8_t>(from, 1); flags != 0) return broken("flags", flags, "0");
    if (f.status != frame_status::ok && f.type != frame_type::end && f.type != frame_type::commit)
        return broken((std::string("status of ") + to_string(f.type)).c_str(), status, "0");
    if (f.payload_bytes > payload_bytes_max(f.type))
        return broken((std::string("payload of ") + to_string(f.type)).c_str(), f.payload_bytes,
                      ("at most " + std::to_string(payload_bytes_max(f.type))).c_str());
    return f;
}

std::array<std::byte, greeting_bytes> encode(const greeting& g) noexcept {
    std::array<std::byte, greeting_bytes> bytes{};
    std::memcpy(bytes.data(), magic.data(), magic.size());
    const std::span<std::byte> into(bytes);
    put(into, 8, g.version_min);
    put(into, 10, g.version_max);
    put(into, 12, static_cast<std::uint8_t>(g.kind));
    put(into, 13, g.lane);
    put(into, 14, g.lanes);
    put(into, 16, g.operations_in_flight);
    put(into, 20, g.receive_credits);
    put(into, 24, g.message_bytes_max);
    put(into, 28, static_cast<std::uint16_t>(g.reason));
    put(into, 32, g.owner);
    put(into, 40, g.token[0]);
    put(into, 48, g.token[1]);
    return bytes;
}

result<void> check_greeting_start(std::span<const std::byte> received) {
    const std::size_t known = std::min(received.size(), magic.size());
    if (std::memcmp(received.data(), magic.data(), known) != 0) return no_greeting(received);
    return {};
}

result<greeting> decode_greeting(std::span<const std::byte, greeting_bytes> from) {
    if (auto ok = check_greeting_start(from); !ok) return ok.error();
    greeting g;
    g.version_min = get<std::uint16_t>(from, 8);
    g.version_max = get<std::uint16_t>(from, 10);
    const auto kind = get<std::uint8_t>(from, 12);
    const auto reason = get<std::uint16_t>(from, 28);
    g.lane = get<std::uint8_t>(from, 13);
    g.lanes = get<std::uint16_t>(from, 14);
    g.operations_in_flight = get<std::uint32_t>(from, 16);
    g.receive_credits = get<std::uint32_t>(from, 20);
    g.message_bytes_max = get<std::uint32_t>(from, 24);
    g.owner = get<std::uint64_t>(from, 32);
    g.token = {get<std::uint64_t>(from, 40), get<std::uint64_t>(from, 48)};
    // Another version may give the rest another meaning; whoever speaks none in common stops here.
    if (g.version_min > protocol_version || g.version_max < protocol_version) return g;
    if (kind == 0 || kind > static_cast<std::uint8_t>(greeting_kind::refused))
        return error(errc::protocol_error, "handshake: kind = " + std::to_string(kind) + ", allowed is 1..4");
    if (reason > static_cast<std::uint16_t>(refusal::busy))
        return error(errc::protocol_error, "handshake: reason = " + std::to_string(reason) + ", allowed is 0..4");
    g.kind = static_cast<greeting_kind>(kind);
    g.reason = static_cast<refusal>(reason);
    return g;
}

} // namespace sluice::net
