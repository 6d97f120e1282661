#include "net/text.hpp"

#include <algorithm>

namespace sluice::net {

std::string quoted(std::string_view text) {
    constexpr std::size_t shown_max = 200;
    constexpr char digits[] = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text.substr(0, std::min(text.size(), shown_max))) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte >= 0x20 && byte < 0x7f) {
            out += c;
        } else {
            out += "\\x";
            out += digits[byte >> 4];
            out += digits[byte & 15];
        }
    }
    out += text.size() > shown_max ? "...\"" : "\"";
    return out;
}

} // namespace sluice::net
