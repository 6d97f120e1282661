#include "rdma/handshake.hpp"

#include <sluice/contract.hpp>

#include "net/provider.hpp"
#include "net/text.hpp"
#include "rdma/bytes.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace sluice::rdma {

namespace {

constexpr std::string_view magic = "SLCR";
constexpr std::uint8_t atomics_bit = 1;
constexpr std::uint8_t witness_bit = 2;
constexpr unsigned mtu_shift = 2;
constexpr std::uint8_t mtu_max = 5;
using detail::lanes_max;

// Where each field lies: the table in handshake.hpp.
constexpr std::size_t version_at = 4;
constexpr std::size_t kind_at = 6;
constexpr std::size_t lanes_at = 7;
constexpr std::size_t lane_at = 8;
constexpr std::size_t capabilities_at = 9;
constexpr std::size_t slots_at = 10;
constexpr std::size_t credits_at = 12;
constexpr std::size_t refusal_at = 14;
constexpr std::size_t operations_at = 16;
constexpr std::size_t message_bytes_at = 20;
constexpr std::size_t owner_at = 24;
constexpr std::size_t connection_at = 32;
constexpr std::size_t witness_address_at = 48;
constexpr std::size_t witness_key_at = 56;
static_assert(connection_at + sizeof(greeting::connection) == greeting::encoded_bytes);
static_assert(greeting::encoded_bytes <= 56, "what a request carries on InfiniBand and RoCE [rdma_connect(3)]");

error malformed(const std::string& what) { return {make_error_code(errc::protocol_error), "rdma handshake: " + what}; }

error broken(const char* field, std::uint64_t value, const std::string& allowed) {
    return malformed(std::string(field) + " = " + std::to_string(value) + ", allowed is " + allowed);
}

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A request or an acceptance promises something; a rejection only says why.
result<void> check_limits(const greeting& g) {
    if (g.what == greeting::kind::reject) return {};
    if (g.slots == 0) return broken("slots", 0, "1..65535");
    if (g.credits == 0) return broken("message credits", 0, "1..65535");
    if (g.operations_in_flight == 0) return broken("operations in flight", 0, "1 and more");
    if (g.message_bytes_max == 0) return broken("largest message", 0, "1 byte and more");
    return {};
}

} // namespace

std::vector<std::byte> greeting::encode() const {
    SLUICE_EXPECTS(lanes != 0 && lanes <= lanes_max && lane < lanes,
                   "rdma handshake: a lane that is none of the lanes");
    SLUICE_EXPECTS((what == kind::reject) == (why != refusal::none),
                   "rdma handshake: a refusal and its reason go together");
    SLUICE_EXPECTS(path_mtu <= mtu_max, "rdma handshake: an MTU that is none");
    std::vector<std::byte> bytes(encoded_bytes + (witness ? witness_bytes : 0));
    const std::span<std::byte> into(bytes);
    std::memcpy(into.data(), magic.data(), magic.size());
    put(into, version_at, version);
    put(into, kind_at, static_cast<std::uint8_t>(what));
    put(into, lanes_at, lanes);
    put(into, lane_at, lane);
    put(into, capabilities_at,
        static_cast<std::uint8_t>((atomics ? atomics_bit : 0) | (witness ? witness_bit : 0) | path_mtu << mtu_shift));
    put(into, slots_at, slots);
    put(into, credits_at, credits);
    put(into, refusal_at, static_cast<std::uint16_t>(why));
    put(into, operations_at, operations_in_flight);
    put(into, message_bytes_at, message_bytes_max);
    put(into, owner_at, owner);
    std::ranges::copy(connection, into.begin() + connection_at);
    if (witness) {
        put(into, witness_address_at, witness->address);
        put(into, witness_key_at, witness->key);
    }
    return bytes;
}

result<greeting> greeting::decode(std::span<const std::byte> bytes) {
    const auto start = bytes.first(std::min(bytes.size(), magic.size()));
    if (text_of(start) != magic)
        return malformed("the peer does not speak sluice's protocol; where \"SLCR\" belongs it sent " +
                         net::quoted(text_of(start)));
    if (bytes.size() < encoded_bytes)
        return malformed(std::to_string(bytes.size()) + " bytes, a greeting has " + std::to_string(encoded_bytes));
    greeting g;
    g.version = get<std::uint16_t>(bytes, version_at);
    if (g.version != current_version) // another one may give the rest another meaning
        return error(make_error_code(errc::version_mismatch), "rdma handshake: the peer speaks version " +
                                                                  std::to_string(g.version) + ", this one version " +
                                                                  std::to_string(current_version));
    const auto kind_number = get<std::uint8_t>(bytes, kind_at);
    if (kind_number == 0 || kind_number > static_cast<std::uint8_t>(kind::reject))
        return broken("kind", kind_number, "1..3");
    g.what = static_cast<kind>(kind_number);
    g.lanes = get<std::uint8_t>(bytes, lanes_at);
    if (g.lanes == 0 || g.lanes > lanes_max) return broken("lanes", g.lanes, "1.." + std::to_string(lanes_max));
    g.lane = get<std::uint8_t>(bytes, lane_at);
    if (g.lane >= g.lanes) return broken("lane", g.lane, "0.." + std::to_string(g.lanes - 1));
    const auto capabilities = get<std::uint8_t>(bytes, capabilities_at);
    g.path_mtu = static_cast<std::uint8_t>(capabilities >> mtu_shift);
    if (g.path_mtu > mtu_max)
        return broken("capability bits", capabilities, "sums of 1 (atomics), 2 (a witness) and 4 times the MTU 0..5");
    g.atomics = (capabilities & atomics_bit) != 0;
    const std::size_t length = encoded_bytes + ((capabilities & witness_bit) != 0 ? witness_bytes : 0);
    if (bytes.size() < length)
        return malformed(std::to_string(bytes.size()) + " bytes, a greeting with a witness has " +
                         std::to_string(length));
    g.slots = get<std::uint16_t>(bytes, slots_at);
    g.credits = get<std::uint16_t>(bytes, credits_at);
    const auto reason = get<std::uint16_t>(bytes, refusal_at);
    const bool rejects = g.what == kind::reject;
    if (rejects ? reason == 0 || reason > static_cast<std::uint16_t>(refusal::device) : reason != 0)
        return broken("reason of a rejection", reason, rejects ? "1..5" : "0, this is none");
    g.why = static_cast<refusal>(reason);
    g.operations_in_flight = get<std::uint32_t>(bytes, operations_at);
    g.message_bytes_max = get<std::uint32_t>(bytes, message_bytes_at);
    g.owner = get<std::uint64_t>(bytes, owner_at);
    std::ranges::copy(bytes.subspan(connection_at, g.connection.size()), g.connection.begin());
    if (length > encoded_bytes)
        g.witness = {get<std::uint64_t>(bytes, witness_address_at), get<std::uint32_t>(bytes, witness_key_at)};
    if (auto good = check_limits(g); !good) return good.error();
    const auto rest = bytes.subspan(length);
    if (const auto odd = std::ranges::find_if(rest, [](std::byte b) { return b != std::byte{0}; }); odd != rest.end())
        return broken("a byte after the greeting", std::to_integer<std::uint64_t>(*odd), "0");
    return g;
}

const char* to_string(greeting::refusal why) noexcept {
    switch (why) {
    case greeting::refusal::none: return "it was not refused";
    case greeting::refusal::version: return "the peer speaks no common version of the protocol";
    case greeting::refusal::busy: return "the peer has no room for a further connection";
    case greeting::refusal::not_sluice: return "the peer took the request for one of another program";
    case greeting::refusal::no_resources: return "the peer's device has no resources for a further connection";
    case greeting::refusal::malformed: return "the peer could not make sense of the request";
    case greeting::refusal::device: return "the peer takes no connections by the device that leads there";
    }
    return "the peer gave a reason that is unknown here";
}

} // namespace sluice::rdma
