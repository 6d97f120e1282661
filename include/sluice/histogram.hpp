#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice {

/// Latencies in buckets whose width is 1/8 of their value or less (log-linear): recording is a few instructions and
/// never allocates, a percentile is at most 12.5 % too high.
///
/// Thread rule: distinct objects safe.
class histogram {
public:
    /// Negative counts as 0, more than the last bucket holds (over a minute) as that.
    void record(std::chrono::nanoseconds value) noexcept {
        ++buckets_[index_of(value.count() < 0 ? 0 : static_cast<std::uint64_t>(value.count()))];
        ++count_;
    }
    /// Values recorded, merged ones included.
    std::uint64_t count() const noexcept { return count_; }
    ///@{
    /// As percentile().
    std::chrono::nanoseconds p50() const noexcept { return percentile(0.50); }
    std::chrono::nanoseconds p99() const noexcept { return percentile(0.99); }
    ///@}
    /// The upper edge of the bucket in which the `fraction` (0..1) of the values lies; 0 when nothing was recorded.
    std::chrono::nanoseconds percentile(double fraction) const noexcept {
        const auto wanted = static_cast<std::uint64_t>(fraction * static_cast<double>(count_));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            seen += buckets_[i];
            if (seen > wanted || (seen == count_ && seen != 0)) return std::chrono::nanoseconds(upper_edge(i));
        }
        return std::chrono::nanoseconds(0);
    }
    /// Adds the values of `other`, as if they had been recorded here.
    void merge(const histogram& other) noexcept {
        for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
        count_ += other.count_;
    }

private:
    static constexpr std::size_t sub_buckets = 8;
    static constexpr std::size_t octaves = 34; // up to 2^36 ns, over a minute; longer ones count there

    static constexpr std::size_t index_of(std::uint64_t ns) noexcept {
        if (ns < sub_buckets) return static_cast<std::size_t>(ns);
        const auto octave = static_cast<std::size_t>(std::bit_width(ns)) - 3; // 1 for 8..15
        if (octave >= octaves) return sub_buckets * octaves - 1;
        return octave * sub_buckets + static_cast<std::size_t>((ns >> (octave - 1)) & (sub_buckets - 1));
    }
    static constexpr std::int64_t upper_edge(std::size_t index) noexcept {
        if (index < sub_buckets) return static_cast<std::int64_t>(index);
        const std::size_t octave = index / sub_buckets;
        const std::uint64_t low = (sub_buckets + index % sub_buckets) << (octave - 1);
        return static_cast<std::int64_t>(low + (std::uint64_t{1} << (octave - 1)) - 1);
    }

    std::array<std::uint32_t, sub_buckets * octaves> buckets_{};
    std::uint64_t count_ = 0;
};

} // namespace sluice
