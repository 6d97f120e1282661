#include <sluice/region.hpp>

#include "runtime/registration.hpp"

#include <charconv>
#include <limits>
#include <string>

namespace sluice {

namespace {

constexpr std::uint8_t encoding_version = 1;
constexpr std::uint16_t known_access = static_cast<std::uint16_t>(access::remote_read | access::remote_write |
                                                                  access::remote_atomic);
constexpr std::string_view digits = "0123456789abcdef";

// Where each field lies: the table in region.hpp.
constexpr std::size_t version_at = 0;
constexpr std::size_t provider_at = 1;
constexpr std::size_t access_at = 2;
constexpr std::size_t generation_at = 4;
constexpr std::size_t address_at = 8;
constexpr std::size_t size_at = 16;
constexpr std::size_t key_at = 24;
constexpr std::size_t owner_at = 32;
static_assert(owner_at + sizeof(std::uint64_t) == remote_region::encoded_bytes);

// Byte by byte: the same on any host, and compilers make one move of it.
template <class Integer>
void put(std::span<std::byte, remote_region::encoded_bytes> out, std::size_t at, Integer value) noexcept {
    for (std::size_t i = 0; i < sizeof value; ++i) out[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

template <class Integer>
Integer get(std::span<const std::byte> in, std::size_t at) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) value |= std::to_integer<std::uint64_t>(in[at + i]) << (8 * i);
    return static_cast<Integer>(value);
}

error malformed(const std::string& what) { return {make_error_code(errc::protocol_error), "remote region: " + what}; }

std::string hexadecimal(std::uint64_t value) {
    std::array<char, 16> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value, 16).ptr;
    return "0x" + std::string(text.data(), end);
}

} // namespace

result<memory_region> memory_region::create(std::span<std::byte> memory, memory_kind kind) {
    if (memory.empty() || memory.data() == nullptr)
        return error(make_error_code(errc::invalid_argument), "memory region: an empty range; give it at least 1 byte");
    memory_region made;
    made.registration_.reset(new detail::registration{memory.data(), memory.size(), kind});
    detail::announce(*made.registration_);
    return made;
}

void detail::registration_deleter::operator()(registration* memory) const noexcept {
    withdraw(*memory);
    delete memory;
}

region_view memory_region::view() const noexcept {
    if (registration_ == nullptr) return {};
    return {registration_->base, registration_->size_bytes, *registration_};
}

std::array<std::byte, remote_region::encoded_bytes> remote_region::encode() const noexcept {
    std::array<std::byte, encoded_bytes> out{};
    const std::span<std::byte, encoded_bytes> to(out);
    put(to, version_at, encoding_version);
    put(to, provider_at, static_cast<std::uint8_t>(provider));
    put(to, access_at, static_cast<std::uint16_t>(granted));
    put(to, generation_at, generation);
    put(to, address_at, address);
    put(to, size_at, size_bytes);
    put(to, key_at, key);
    put(to, owner_at, owner);
    return out;
}

result<remote_region> remote_region::decode(std::span<const std::byte> bytes) {
    if (bytes.size() != encoded_bytes)
        return malformed(std::to_string(bytes.size()) + " bytes, a description has " + std::to_string(encoded_bytes));
    if (const auto version = get<std::uint8_t>(bytes, version_at); version != encoding_version)
        return malformed("version " + std::to_string(version) + ", known is " + std::to_string(encoding_version));
    const auto provider = get<std::uint8_t>(bytes, provider_at);
    if (provider > static_cast<std::uint8_t>(provider_kind::rdma))
        return malformed("provider " + std::to_string(provider) + ", known are 0 (tcp) and 1 (rdma)");
    const auto granted = get<std::uint16_t>(bytes, access_at);
    if ((granted & ~known_access) != 0)
        return malformed("access bits " + hexadecimal(granted) + ", known are " + hexadecimal(known_access));
    remote_region region;
    region.address = get<std::uint64_t>(bytes, address_at);
    region.size_bytes = get<std::uint64_t>(bytes, size_at);
    region.key = get<std::uint64_t>(bytes, key_at);
    region.owner = get<std::uint64_t>(bytes, owner_at);
    region.generation = get<std::uint32_t>(bytes, generation_at);
    region.granted = static_cast<access>(granted);
    region.provider = static_cast<provider_kind>(provider);
    if (region.size_bytes > std::numeric_limits<std::uint64_t>::max() - region.address)
        return malformed(std::to_string(region.size_bytes) + " bytes from address " + hexadecimal(region.address) +
                         " leave the address space");
    return region;
}

std::string remote_region::to_string() const {
    std::string text;
    text.reserve(2 * encoded_bytes);
    for (const std::byte each : encode()) {
        text += digits[std::to_integer<std::size_t>(each >> 4)];
        text += digits[std::to_integer<std::size_t>(each & std::byte{15})];
    }
    return text;
}

result<remote_region> remote_region::from_string(std::string_view text) {
    if (text.size() != 2 * encoded_bytes)
        return malformed("a text of " + std::to_string(text.size()) + " characters, a description has " +
                         std::to_string(2 * encoded_bytes));
    if (const std::size_t at = text.find_first_not_of(digits); at != std::string_view::npos)
        return malformed("character " + std::to_string(at + 1) + " of the text has the value " +
                         hexadecimal(static_cast<unsigned char>(text[at])) + ", allowed are 0-9 and a-f");
    std::array<std::byte, encoded_bytes> bytes{};
    for (std::size_t i = 0; i < encoded_bytes; ++i) {
        std::uint8_t value = 0;
        std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, value, 16);
        bytes[i] = std::byte{value};
    }
    return decode(bytes);
}

} // namespace sluice
