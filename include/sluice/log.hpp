#pragma once

#include <sluice/export.hpp>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace sluice {

/// How much sluice says. A level includes the ones before it; the default is `warning`.
enum class log_level : std::uint8_t {
    off,     ///< nothing
    error,   ///< something failed that no caller is told of
    warning, ///< it works, but less well than it could; says why and what helps
    info,    ///< what was chosen, and why
    debug,   ///< what happens, for the developers of sluice
};

/// "warning" for log_level::warning; the names that the environment variable SLUICE_LOG takes.
SLUICE_EXPORT const char* to_string(log_level level) noexcept;

/// Gets one message, a sentence without a line end. Calls are serialised; they come from any thread. A handler must
/// not set a handler; what sluice says while a handler runs on the same thread is dropped.
///
/// Lifetime: `message` is valid during the call only.
using log_handler = void (*)(void* context, log_level level, std::string_view message) noexcept;

/// Sends messages to `handler`, or with null to standard error as "sluice: warning: ...". Once it returns, the handler
/// before is not running and will not be called again.
///
/// Lifetime: `context` must stay valid until another handler is set. Thread rule: thread-safe.
SLUICE_EXPORT void set_log_handler(log_handler handler, void* context) noexcept;

/// Overrides the level of the environment variable SLUICE_LOG (off, error, warning, info or debug), which is read at
/// the first message; a value that is none of these is reported once and counts as `warning`. Thread rule: thread-safe.
SLUICE_EXPORT void set_log_level(log_level level) noexcept;

namespace detail {

/// The level, or above any level while SLUICE_LOG has not been read.
SLUICE_EXPORT extern std::atomic<std::uint8_t> log_threshold;
SLUICE_EXPORT bool log_enabled_slow(log_level level) noexcept;
inline constexpr std::uint8_t log_threshold_unread = 255;

} // namespace detail

/// Whether a message of this level would be said: one load and one comparison. Thread rule: thread-safe.
inline bool log_enabled(log_level level) noexcept {
    const std::uint8_t threshold = detail::log_threshold.load(std::memory_order_relaxed);
    if (static_cast<std::uint8_t>(level) > threshold) [[likely]] return false;
    return threshold != detail::log_threshold_unread || detail::log_enabled_slow(level);
}

} // namespace sluice
