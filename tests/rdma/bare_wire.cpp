#include "tests/rdma/bare_wire.hpp"

#include <algorithm>
#include <utility>

namespace sluice::bare {

namespace {

/// Little-endian numbers one after another.
class writer {
public:
    template <class T>
    writer& number(T value) {
        std::uint64_t rest = value;
        for (std::size_t i = 0; i < sizeof(T); ++i, rest >>= 8) out_.push_back(static_cast<std::byte>(rest & 0xff));
        return *this;
    }
    template <class Range>
    writer& raw(const Range& range) {
        for (const auto each : range) out_.push_back(static_cast<std::byte>(each));
        return *this;
    }
    bytes take() { return std::move(out_); }

private:
    bytes out_;
};

class reader {
public:
    explicit reader(std::span<const std::byte> from) : left_(from) {}
    template <class T>
    reader& number(T& into) {
        std::uint64_t value = 0;
        for (std::size_t i = sizeof(T); i > 0; --i) value = value << 8 | std::to_integer<std::uint64_t>(left_[i - 1]);
        into = static_cast<T>(value);
        left_ = left_.subspan(sizeof(T));
        return *this;
    }
    std::span<const std::byte> raw(std::size_t count) {
        const auto these = left_.first(count);
        left_ = left_.subspan(count);
        return these;
    }
    std::span<const std::byte> rest() const { return left_; }

private:
    std::span<const std::byte> left_;
};

} // namespace

bytes encode(const hello& h) {
    if (h.magic.size() != 4) throw failure("bare peer: the magic has 4 bytes, not " + std::to_string(h.magic.size()));
    writer out;
    out.raw(h.magic).number(h.version).number(h.kind).number(h.lanes).number(h.lane).number(h.capabilities);
    out.number(h.slots).number(h.credits).number(h.reason).number(h.operations).number(h.message_bytes);
    out.number(h.owner).raw(h.connection);
    return out.take();
}

void append_witness(bytes& greeting, std::uint64_t address, std::uint32_t key) {
    constexpr std::byte witness_bit{2};
    greeting.at(9) |= witness_bit;
    writer out;
    out.number(address).number(key);
    const bytes more = out.take();
    greeting.insert(greeting.end(), more.begin(), more.end());
}

hello parse_hello(std::span<const std::byte> from) {
    if (from.size() < hello::length)
        throw failure("bare peer: " + std::to_string(from.size()) + " bytes of private data, a greeting has 48");
    reader in(from);
    hello h;
    h.magic = text_of(in.raw(4));
    in.number(h.version).number(h.kind).number(h.lanes).number(h.lane).number(h.capabilities);
    in.number(h.slots).number(h.credits).number(h.reason).number(h.operations).number(h.message_bytes);
    in.number(h.owner);
    std::ranges::transform(in.raw(16), h.connection.begin(),
                           [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    return h;
}

bytes encode(const frame& f) {
    writer out;
    out.number(f.type).number(f.access).number(f.slots).number(f.credits).number(f.payload_bytes);
    out.number(f.number).number(f.key).number(f.size).number(f.address).raw(f.payload);
    return out.take();
}

frame parse_frame(std::span<const std::byte> from) {
    if (from.size() < frame::header_length)
        throw failure("bare peer: a frame of " + std::to_string(from.size()) + " bytes, the header has 32");
    reader in(from);
    frame f;
    in.number(f.type).number(f.access).number(f.slots).number(f.credits).number(f.payload_bytes);
    in.number(f.number).number(f.key).number(f.size).number(f.address);
    f.payload.assign(in.rest().begin(), in.rest().end());
    if (f.payload.size() != f.payload_bytes)
        throw failure("bare peer: a frame of type " + std::to_string(f.type) + " with " +
                      std::to_string(f.payload.size()) + " bytes of payload that claims " +
                      std::to_string(f.payload_bytes));
    return f;
}

bytes encode(const region& r) {
    constexpr std::uint8_t version = 1;
    constexpr std::uint8_t over_rdma = 1;
    writer out;
    out.number(version).number(over_rdma).number(r.access).number(r.generation);
    out.number(r.address).number(r.size).number(r.key).number(r.owner);
    return out.take();
}

frame message_of(std::span<const std::byte> payload) {
    frame f{.type = frame::message, .payload_bytes = static_cast<std::uint16_t>(payload.size())};
    f.payload.assign(payload.begin(), payload.end());
    return f;
}

frame message_of(const std::string& text) { return message_of(std::as_bytes(std::span(text))); }

bytes pattern(std::size_t count, std::uint32_t seed) {
    bytes made(count);
    for (std::size_t i = 0; i < count; ++i)
        made[i] = static_cast<std::byte>((i * 2654435761U + seed * 40503U) >> 11 & 0xff);
    return made;
}

bytes part(std::span<const std::byte> of, std::size_t from, std::size_t count) {
    const auto these = of.subspan(from, count);
    return {these.begin(), these.end()};
}

std::string text_of(std::span<const std::byte> from) {
    return {reinterpret_cast<const char*>(from.data()), from.size()};
}

} // namespace sluice::bare
