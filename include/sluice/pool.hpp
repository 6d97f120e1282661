#pragma once

#include <sluice/detail/promise.hpp>
#include <sluice/export.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace sluice {

class memory_pool;

/// How a pool is made; validated by `memory_pool::create`, which names the field that is wrong.
struct pool_options {
    std::size_t size_bytes = std::size_t{64} << 20;  ///< total, rounded up to 2 MiB; 2 MiB..1 TiB
    std::size_t receive_reserve_bytes = 0;           ///< kept back for purpose::receive; 0: one eighth of the pool
    mode huge_pages = mode::automatic;               ///< 2 MiB pages [mmap(2) MAP_HUGETLB]; automatic falls back to 4 KiB
};

/// What a buffer is for. Receives may use the reserve, so that sends can never starve them.
enum class purpose : std::uint8_t { general, receive };

/// How full a pool is. Bytes count what is leased, rounded up to whole blocks of 4 KiB.
struct pool_occupancy {
    std::size_t size_bytes = 0;
    std::size_t used_bytes = 0;
    std::size_t peak_bytes = 0;
    std::size_t reserve_bytes = 0;
    std::size_t leases = 0;
    std::size_t waiters = 0;
    std::uint64_t waits = 0; ///< allocations that had to wait, since the pool was made
};

/// A lease of pool memory; gives it back when it goes. Page-aligned, so direct I/O and registered buffers can use it.
///
/// Lifetime: must outlive every operation on it and must go before the pool. Thread rule: may be given back on any
/// thread.
class SLUICE_EXPORT pooled_buffer {
public:
    pooled_buffer() noexcept = default;
    pooled_buffer(pooled_buffer&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), view_(std::exchange(other.view_, {})) {}
    pooled_buffer& operator=(pooled_buffer&& other) noexcept {
        if (this != &other) {
            reset();
            pool_ = std::exchange(other.pool_, nullptr);
            view_ = std::exchange(other.view_, {});
        }
        return *this;
    }
    ~pooled_buffer() { reset(); }

    explicit operator bool() const noexcept { return pool_ != nullptr; }
    std::byte* data() const noexcept { return view_.data(); }
    std::size_t size_bytes() const noexcept { return view_.size_bytes(); }
    std::span<std::byte> bytes() const noexcept { return view_.bytes(); }
    region_view view() const noexcept { return view_; }
    operator region_view() const noexcept { return view_; }
    operator const_region_view() const noexcept { return view_; }
    region_view first(std::size_t n) const noexcept { return view_.first(n); }
    region_view subview(std::size_t offset, std::size_t n) const noexcept { return view_.subview(offset, n); }
    /// Gives the memory back now.
    void reset() noexcept;

private:
    friend class memory_pool;
    pooled_buffer(memory_pool& pool, region_view view) noexcept : pool_(&pool), view_(view) {}
    memory_pool* pool_ = nullptr;
    region_view view_;
};

/// Memory registered once with everything that moves bytes. Allocation never touches the heap; when the pool is empty
/// it waits its turn (first come, first served), which is the back-pressure of a pipeline.
///
/// Take all that one step needs in one allocation: a task that waits for a second buffer while it holds the first can
/// deadlock with others that do the same. Lifetime: leases and registrations must go before the pool. Thread rule:
/// thread-safe.
class SLUICE_EXPORT memory_pool {
public:
    /// Errors: `condition::invalid` (an option, by name), `condition::out_of_resources` (no memory; or huge pages
    /// required and missing: says how many are free and how to reserve them).
    static result<std::unique_ptr<memory_pool>> create(const pool_options& options);
    ~memory_pool();
    memory_pool(const memory_pool&) = delete;
    memory_pool& operator=(const memory_pool&) = delete;

    struct waiter; ///< in the awaiting frame
    class allocation;

    /// `co_await pool.allocate(n)`: result<pooled_buffer> of exactly `n` bytes, page-aligned, contiguous. `n` = 0 gives
    /// an empty lease at once. Errors: `condition::out_of_resources` when `n` can never fit (both numbers are named),
    /// `condition::canceled`.
    [[nodiscard]] allocation allocate(std::size_t size_bytes, purpose use = purpose::general) noexcept;
    /// The same without waiting: errc::out_of_resources when there is no room now or others wait already.
    result<pooled_buffer> try_allocate(std::size_t size_bytes, purpose use = purpose::general);

    pool_occupancy occupancy() const noexcept;
    const detail::registration& registration() const noexcept;
    bool uses_huge_pages() const noexcept;

private:
    friend class pooled_buffer;
    friend class allocation;
    memory_pool();
    void release(region_view view) noexcept;
    struct impl;
    std::unique_ptr<impl> impl_;
};

} // namespace sluice
