#include "runtime/log.hpp"

#include <sluice/contract.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <unistd.h>

namespace sluice {

namespace {

constexpr std::array levels{log_level::off, log_level::error, log_level::warning, log_level::info, log_level::debug};

void write_to_stderr(log_level level, std::string_view message) {
    std::string line = std::string("sluice: ") + to_string(level) + ": ";
    line += message;
    // A message may quote a peer or a file name; a line end in it must not look like a message of ours.
    std::replace_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    line += '\n';
    // One call, so that lines of several threads and processes don't mix.
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
        // Standard error is closed: nobody listens.
    }
}

// Constant-initialised and trivially destroyed: usable before main and after it.
constinit std::mutex sink_mutex;
constinit log_handler sink = nullptr;
constinit void* sink_context = nullptr;
constinit thread_local bool inside_sink = false;

void say(log_level level, std::string_view message) {
    if (inside_sink) return;
    const std::lock_guard lock(sink_mutex);
    if (sink == nullptr) {
        write_to_stderr(level, message);
        return;
    }
    inside_sink = true;
    sink(sink_context, level, message);
    inside_sink = false;
}

bool parse(std::string_view text, log_level& level) noexcept {
    const auto* const found =
        std::find_if(levels.begin(), levels.end(), [text](log_level each) { return text == to_string(each); });
    if (found == levels.end()) return false;
    level = *found;
    return true;
}

} // namespace

const char* to_string(log_level level) noexcept {
    switch (level) {
    case log_level::off: return "off";
    case log_level::error: return "error";
    case log_level::warning: return "warning";
    case log_level::info: return "info";
    case log_level::debug: return "debug";
    }
    return "unknown";
}

void set_log_handler(log_handler handler, void* context) noexcept {
    SLUICE_EXPECTS(!inside_sink, "set_log_handler: called from inside a log handler");
    const std::lock_guard lock(sink_mutex);
    sink = handler;
    sink_context = context;
}

void set_log_level(log_level level) noexcept {
    SLUICE_EXPECTS(level <= log_level::debug, "set_log_level: not a level");
    detail::log_threshold.store(static_cast<std::uint8_t>(level), std::memory_order_relaxed);
}

namespace detail {

constinit std::atomic<std::uint8_t> log_threshold{log_threshold_unread};

bool log_enabled_slow(log_level level) noexcept {
    const char* const text = std::getenv("SLUICE_LOG");
    log_level chosen = log_level::warning;
    const bool valid = text == nullptr || *text == '\0' || parse(text, chosen);
    // Whoever replaces the mark reports a wrong value, so that it is reported once.
    std::uint8_t seen = log_threshold_unread;
    if (log_threshold.compare_exchange_strong(seen, static_cast<std::uint8_t>(chosen), std::memory_order_relaxed) && !valid)
        write_log(log_level::warning, {"SLUICE_LOG=", text,
                                       ": not a level; allowed are off, error, warning, info and debug; using warning"});
    return log_enabled(level);
}

void write_log(log_level level, std::initializer_list<std::string_view> parts) noexcept {
    SLUICE_EXPECTS(level != log_level::off, "log: off is no level of a message");
    try {
        std::string message;
        for (const std::string_view part : parts) message += part;
        say(level, message);
    } catch (const std::bad_alloc&) {
        // Out of memory: whoever ran out of it is told by its own error.
    }
}

} // namespace detail

} // namespace sluice
