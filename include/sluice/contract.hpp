#pragma once

#include <sluice/export.hpp>

namespace sluice::detail {

/// Prints "sluice: broken contract: MESSAGE (EXPRESSION) at FILE:LINE in FUNCTION" to standard error and aborts.
/// Async-signal-safe: one write(2), no allocation.
[[noreturn]] SLUICE_EXPORT void contract_failed(const char* message, const char* expression, const char* file,
                                                unsigned line, const char* function) noexcept;

} // namespace sluice::detail

/// States what a caller must have ensured. Always on: a broken contract stops the process with a message that names
/// it; the world's failures (a lost peer, a full disk) are never contracts but `result` errors.
#define SLUICE_EXPECTS(condition, message)                                                                             \
    (__builtin_expect(!!(condition), 1)                                                                                \
         ? static_cast<void>(0)                                                                                        \
         : ::sluice::detail::contract_failed(message, #condition, __FILE__, __LINE__, static_cast<const char*>(__func__)))

/// A check that is too dear for a release build's data path; the expression is not evaluated under NDEBUG.
#ifdef NDEBUG
#define SLUICE_DEBUG_EXPECTS(condition, message) static_cast<void>(0)
#else
#define SLUICE_DEBUG_EXPECTS(condition, message) SLUICE_EXPECTS(condition, message)
#endif
