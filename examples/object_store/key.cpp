#include "examples/object_store/key.hpp"

#include "examples/object_store/printable.hpp"
#include "examples/object_store/protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace store {

namespace {

constexpr std::size_t part_bytes_max = 255; // NAME_MAX of every file system that matters [limits.h(0p)]

constexpr std::size_t shown_bytes = 64;     // in messages

bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

sluice::error refuse(std::string_view key, std::string_view why) {
    return {sluice::errc::invalid_argument, fmt::format("key \"{}\": {}", printable(key, shown_bytes), why)};
}

const char* wrong_with_part(std::string_view part) noexcept {
    if (part.empty()) return "it has an empty part (a slash at an end, or two in a row)";
    if (part == "." || part == "..") return "\".\" and \"..\" are not allowed in it";
    if (part.size() > part_bytes_max) return "a part between slashes is longer than 255 bytes";
    if (part.substr(0, reserved_prefix.size()) == reserved_prefix) return "names that start with .sluice- are reserved";
    return nullptr;
}

} // namespace

sluice::result<void> check_key(std::string_view key) {
    if (key.empty()) return refuse(key, "it is empty");
    if (key.size() > key_bytes_max)
        return refuse(key, fmt::format("it has {} bytes, at most {} are allowed", key.size(), key_bytes_max));
    if (std::any_of(key.begin(), key.end(), is_control)) return refuse(key, "control characters are not allowed");
    for (std::size_t at = 0; at <= key.size();) {
        const std::size_t end = std::min(key.find('/', at), key.size());
        if (const char* wrong = wrong_with_part(key.substr(at, end - at))) return refuse(key, wrong);
        at = end + 1;
    }
    return {};
}

} // namespace store
