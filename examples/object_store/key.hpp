#pragma once

#include <sluice/result.hpp>

#include <string_view>

namespace store {

/// Names that the server keeps for itself start with this, in any part of a key.
inline constexpr std::string_view reserved_prefix = ".sluice-";

/// Whether `key` may name an object: 1..512 bytes; parts of 1..255 bytes between slashes, none of them "." or "..", none
/// starting with ".sluice-"; no control characters. What passes can't leave the directory by its spelling.
///
/// Errors: `condition::invalid`, which quotes the key and says what is wrong with it.
sluice::result<void> check_key(std::string_view key);

} // namespace store
