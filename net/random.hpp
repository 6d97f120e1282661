#pragma once

#include <cstdint>

namespace sluice::net {

/// From the kernel's generator, fit for secrets [getrandom(2)].
std::uint64_t random_number() noexcept;
/// One such number for the life of this process: the owner in the descriptions of its memory.
std::uint64_t process_number() noexcept;

} // namespace sluice::net
