#pragma once

#include <cstdint>

namespace sluice::net {

/// From the kernel's generator, fit for secrets [getrandom(2)].
std::uint64_t random_number() noexcept;

} // namespace sluice::net
