#pragma once

#include <cstdint>

namespace sluice::testing {

/// How often this thread has called operator new since it started, in every form. Linking it replaces operator new and
/// delete of the test program by ones that count.
std::uint64_t heap_allocations() noexcept;

} // namespace sluice::testing
