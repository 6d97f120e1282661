#include "examples/object_store/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <unistd.h>

namespace store {

progress_bar::progress_bar(std::string label, bool wanted)
    : label_(std::move(label)), shown_(wanted && isatty(STDERR_FILENO) == 1),
      started_(std::chrono::steady_clock::now()), last_draw_(started_) {}

void progress_bar::advance(std::uint64_t bytes) {
    done_bytes_ += bytes;
    if (!shown_) return;
    constexpr auto pause = std::chrono::milliseconds(100);
    const auto now = std::chrono::steady_clock::now();
    if (now - last_draw_ < pause) return;
    last_draw_ = now;
    draw(now);
}

void progress_bar::draw(std::chrono::steady_clock::time_point now) {
    constexpr std::size_t width = 30;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const double rate = seconds > 0 ? static_cast<double>(done_bytes_) / seconds : 0;
    const double part =
        total_bytes_ == 0 ? 0 : std::min(1.0, static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
    const auto filled = static_cast<std::size_t>(part * width);
    const auto left_bytes = static_cast<double>(total_bytes_ - std::min(done_bytes_, total_bytes_));
    const std::string line =
        fmt::format("\r{} [{:#<{}}{:.<{}}] {:3.0f}%  {} of {}  {}/s  {:.0f} s left\x1b[K", label_, "", filled, "",
                    width - filled, part * 100, human_bytes(static_cast<double>(done_bytes_)),
                    human_bytes(static_cast<double>(total_bytes_)), human_bytes(rate),
                    rate > 0 ? left_bytes / rate : 0.0);
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
    drawn_ = true;
}

void progress_bar::clear() noexcept {
    if (!drawn_) return;
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
    drawn_ = false;
}

std::string human_bytes(double bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < std::size(units)) {
        bytes /= 1024;
        ++unit;
    }
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : bytes < 100 ? 1 : 0, units[unit]);
}

} // namespace store
