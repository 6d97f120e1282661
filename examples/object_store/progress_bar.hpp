#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace store {

/// One line on a terminal that says how far a transfer is; nothing at all anywhere else.
///
/// Thread rule: distinct objects safe.
class progress_bar {
public:
    /// Shows itself only when `wanted` and standard error is a terminal. `total_bytes` may grow later.
    progress_bar(std::string label, bool wanted);
    ~progress_bar() { clear(); }
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;

    void expect(std::uint64_t more_bytes) noexcept { total_bytes_ += more_bytes; }
    /// Draws at most ten times a second.
    void advance(std::uint64_t bytes);
    /// Takes the line away, so that something else can be printed.
    void clear() noexcept;

private:
    void draw(std::chrono::steady_clock::time_point now);

    std::string label_;
    bool shown_;
    bool drawn_ = false;
    std::uint64_t done_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
    std::chrono::steady_clock::time_point started_;
    std::chrono::steady_clock::time_point last_draw_;
};

/// "1.5 GiB", "17 B": three digits or so, for people.
std::string human_bytes(double bytes);

} // namespace store
