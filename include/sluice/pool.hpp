#pragma once

#include <sluice/contract.hpp>
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
    std::size_t receive_reserve_bytes = 0;           ///< kept back for purpose::receive, rounded up to 4 KiB; less than
                                                     ///< the pool; 0: one eighth of the pool
    mode huge_pages = mode::automatic;               ///< 2 MiB pages [mmap(2) MAP_HUGETLB]; automatic falls back to 4 KiB
                                                     ///< and to what transparent huge pages give [madvise(2)]
};

/// What a buffer is for. The reserve is for receives alone, so that sends can never starve them, neither by how much they
/// hold nor by where it lies; receives may use all of the pool. Each purpose has a queue of its own.
enum class purpose : std::uint8_t { general, receive };

/// How full a pool is. Bytes count what is leased, rounded up to whole blocks of 4 KiB.
struct pool_occupancy {
    std::size_t size_bytes = 0; ///< of the whole pool, the reserve included
    std::size_t used_bytes = 0; ///< leased now, for any purpose
    std::size_t peak_bytes = 0; ///< the most that was used at once
    std::size_t reserve_bytes = 0; ///< for purpose::receive alone
    std::size_t leases = 0;        ///< buffers out now
    std::size_t waiters = 0;       ///< tasks that wait in allocate() now
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
    ///@{
    /// Exactly as long as was asked for; valid until the lease goes. Uninitialised, or left over from the last lease.
    std::byte* data() const noexcept { return view_.data(); }
    std::size_t size_bytes() const noexcept { return view_.size_bytes(); }
    std::span<std::byte> bytes() const noexcept { return view_.bytes(); }
    region_view view() const noexcept { return view_; }
    ///@}
    operator region_view() const noexcept { return view_; }
    operator const_region_view() const noexcept { return view_; }
    ///@{
    /// As region_view; the lease keeps the memory, the view does not.
    region_view first(std::size_t n) const noexcept { return view_.first(n); }
    region_view subview(std::size_t offset, std::size_t n) const noexcept { return view_.subview(offset, n); }
    ///@}
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
    ///
    /// Lifetime: the pool must outlive the wait. Thread rule: the awaiting task's executor; memory that comes back on
    /// another thread resumes it there all the same.
    [[nodiscard]] allocation allocate(std::size_t size_bytes, purpose use = purpose::general) noexcept;
    /// The same without waiting: errc::out_of_resources when there is no room now or others of this purpose wait already.
    result<pooled_buffer> try_allocate(std::size_t size_bytes, purpose use = purpose::general);

    /// A consistent snapshot, under the pool's mutex.
    pool_occupancy occupancy() const noexcept;
    /// All of its memory, for executor::register_memory(); lives as long as the pool.
    const detail::registration& registration() const noexcept;
    /// Whether it lies in reserved 2 MiB pages; transparent ones don't count, since nothing tells how many there are.
    bool uses_huge_pages() const noexcept;

private:
    friend class pooled_buffer;
    struct impl;
    explicit memory_pool(std::unique_ptr<impl> made) noexcept;
    void release(region_view view) noexcept;
    bool begin(waiter& w, detail::promise_base& promise) noexcept;
    result<pooled_buffer> finish(waiter& w);

    std::unique_ptr<impl> impl_;
};

/// One request for memory: a link of the pool's queue. It is served on any thread and resumes on its own.
struct memory_pool::waiter : detail::ready_node, detail::posted_node {
    /// `granted` and `canceled` exclude each other: whichever comes first, under the pool's mutex.
    enum class state : std::uint8_t { idle, waiting, granted, canceled, too_large };
    /// In the list of the task's stop token while it waits.
    struct stop_hook : detail::stop_callback_node {
        waiter* owner = nullptr; ///< the waiter that holds it
    };

    /// For `n` bytes of `from`, which must outlive it.
    waiter(memory_pool& from, std::size_t n, purpose what) noexcept : pool(&from), size_bytes(n), use(what) {}
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() {
        SLUICE_EXPECTS(current != state::waiting && current != state::granted,
                       "memory pool: a task was destroyed while it waits for memory");
    }

    ///@{
    /// Constant once it waits.
    memory_pool* pool;
    std::size_t size_bytes;
    purpose use;
    executor* home = nullptr;
    detail::stop_state* stop_state = nullptr;
    ///@}

    stop_hook hook; ///< its executor's thread only

    ///@{
    /// The pool's mutex guards these while it waits.
    state current = state::idle;
    region_view granted;
    waiter* later = nullptr;
    waiter* earlier = nullptr;
    ///@}
};

/// What allocate() returns: await it once; it refers to the pool.
class [[nodiscard]] memory_pool::allocation {
public:
    bool await_ready() const noexcept { return false; }
    template <detail::sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return waiter_.pool->begin(waiter_, h.promise());
    }
    result<pooled_buffer> await_resume() { return waiter_.pool->finish(waiter_); }

private:
    friend class memory_pool;
    allocation(memory_pool& from, std::size_t size_bytes, purpose use) noexcept : waiter_(from, size_bytes, use) {}
    waiter waiter_;
};

inline memory_pool::allocation memory_pool::allocate(std::size_t size_bytes, purpose use) noexcept {
    return allocation(*this, size_bytes, use);
}

} // namespace sluice
