#include "examples/object_store/printable.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace store {

namespace {

/// Bytes of the control character at the start of `text`: of ASCII, or of the second set in UTF-8 [ISO 6429].
std::size_t control_bytes(std::string_view text) noexcept {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
    return text.size() > 1 && byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0 ? 2 : 0;
}

} // namespace

std::string printable(std::string_view text, std::size_t bytes_max) {
    const std::string_view rest = text.substr(0, bytes_max);
    std::string shown;
    for (std::size_t at = 0; at < rest.size();) {
        const std::size_t control = control_bytes(rest.substr(at));
        if (control == 0) shown += rest[at];
        for (std::size_t i = 0; i < control; ++i) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(rest[at + i]));
        at += std::max<std::size_t>(control, 1);
    }
    return rest.size() < text.size() ? shown + "..." : shown;
}

} // namespace store
