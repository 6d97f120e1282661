#pragma once

#include <cstdint>

namespace store {

/// Raises this process's limit of open files as far as it may by itself, and gives it [setrlimit(2)].
std::uint64_t raise_descriptor_limit() noexcept;

/// Descriptors that a server needs for so many clients that are all busy.
std::uint64_t descriptors_for(std::uint32_t clients) noexcept;

/// So many clients can be busy at once with this many descriptors; at least one.
std::uint32_t clients_within(std::uint64_t descriptors) noexcept;

} // namespace store
