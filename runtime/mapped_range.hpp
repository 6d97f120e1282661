#pragma once

#include <sluice/memory.hpp>
#include <sluice/result.hpp>

#include <cstddef>
#include <utility>

namespace sluice::detail {

inline constexpr std::size_t page_bytes = 4096;
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// Anonymous memory, aligned to 2 MiB; unmapped when it goes. Not inherited by fork: a child must not share pages that
/// devices write to, nor make the parent copy them [madvise(2) MADV_DONTFORK].
class mapped_range {
public:
    mapped_range() noexcept = default;
    mapped_range(mapped_range&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)), huge_(other.huge_) {}
    mapped_range& operator=(mapped_range&&) = delete;
    ~mapped_range();

    /// `size_bytes` is a multiple of 2 MiB. With mode::automatic a fallback to small pages is logged. Errors:
    /// `condition::out_of_resources`, with what was asked for and what there is.
    static result<mapped_range> map(std::size_t size_bytes, mode huge_pages);

    std::byte* data() const noexcept { return data_; }
    std::size_t size_bytes() const noexcept { return size_bytes_; }
    bool huge() const noexcept { return huge_; }

private:
    mapped_range(std::byte* data, std::size_t size_bytes, bool huge) noexcept
        : data_(data), size_bytes_(size_bytes), huge_(huge) {}

    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    bool huge_ = false;
};

} // namespace sluice::detail
