#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace store {

/// For people: names and words of strangers with their control characters as \xNN, since a terminal would obey them, and
/// cut after `bytes_max`.
std::string printable(std::string_view text, std::size_t bytes_max = std::string_view::npos);

} // namespace store
