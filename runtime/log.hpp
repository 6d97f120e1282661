#pragma once

#include <sluice/log.hpp>

#include <atomic>
#include <initializer_list>
#include <string_view>

namespace sluice::detail {

/// Joins the parts and hands them to the handler. A message that finds no memory is dropped.
void write_log(log_level level, std::initializer_list<std::string_view> parts) noexcept;

} // namespace sluice::detail

/// SLUICE_LOG(warning, "pool: ", reason, ", using 4 KiB pages"): says the parts, each anything that a string_view can be
/// made of. They are evaluated only when the level is on.
#define SLUICE_LOG(level, ...)                                                                                         \
    (::sluice::log_enabled(::sluice::log_level::level)                                                                 \
         ? ::sluice::detail::write_log(::sluice::log_level::level, {__VA_ARGS__})                                      \
         : static_cast<void>(0))

/// The same, once per process and place in the source: for what many executors or connections find out one by one.
#define SLUICE_LOG_ONCE(level, ...)                                                                                    \
    do {                                                                                                               \
        static constinit std::atomic<bool> sluice_said{false};                                                         \
        if (::sluice::log_enabled(::sluice::log_level::level) && !sluice_said.exchange(true, std::memory_order_relaxed)) \
            ::sluice::detail::write_log(::sluice::log_level::level, {__VA_ARGS__});                                    \
    } while (false)
