#include <sluice/detail/frame_allocator.hpp>

#include <array>
#include <bit>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_RECYCLE_FRAMES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_RECYCLE_FRAMES 0
#endif
#endif
#ifndef SLUICE_RECYCLE_FRAMES
#define SLUICE_RECYCLE_FRAMES 1 // AddressSanitizer sees use after free only where memory goes back to the heap
#endif

namespace sluice::detail {

namespace {

constexpr std::size_t granule_bytes = 64;
constexpr std::size_t fine_bytes = 4096;    // up to here one class per 64 bytes,
constexpr std::size_t coarse_bytes = 16384; // then one per KiB: a frame just over 4 KiB is common, and many are idle,
constexpr std::size_t largest_bytes = 65536; // then one per power of two
constexpr std::size_t fine_classes = fine_bytes / granule_bytes;
constexpr std::size_t coarse_classes = (coarse_bytes - fine_bytes) / 1024;
constexpr std::size_t class_count = fine_classes + coarse_classes + 2;

struct frame_class {
    std::size_t index;
    std::size_t block_bytes;
};

constexpr frame_class class_of(std::size_t size_bytes) noexcept {
    if (size_bytes <= fine_bytes) {
        const std::size_t index = (size_bytes - 1) / granule_bytes;
        return {index, (index + 1) * granule_bytes};
    }
    if (size_bytes <= coarse_bytes) {
        const std::size_t index = (size_bytes - fine_bytes - 1) / 1024;
        return {fine_classes + index, fine_bytes + (index + 1) * 1024};
    }
    const auto power = static_cast<std::size_t>(std::bit_width(size_bytes - 1));
    return {fine_classes + coarse_classes + power - 15, std::size_t{1} << power};
}
static_assert(class_of(4097).index == fine_classes && class_of(4097).block_bytes == 5120);
static_assert(class_of(16384).index == fine_classes + coarse_classes - 1 && class_of(16384).block_bytes == 16384);
static_assert(class_of(16385).block_bytes == 32768 && class_of(65536).index == class_count - 1);

/// At most 1 MiB of free blocks of each class stay with a thread.
constexpr std::size_t free_bytes_max = std::size_t{1} << 20;

struct free_block {
    free_block* next;
};

struct frame_cache {
    std::array<free_block*, class_count> lists{};
    std::array<std::size_t, class_count> free_bytes{};
    frame_stats stats;

    ~frame_cache() {
        for (free_block*& list : lists) {
            while (list != nullptr) {
                free_block* block = list;
                list = block->next;
                ::operator delete(block);
            }
        }
    }
};

// A bare pointer, so that the fast path has no guard; the owner below creates and destroys what it points to. Frames
// may still be freed after that, by other destructors of thread-locals: then they go to the heap.
[[gnu::tls_model("initial-exec")]] constinit thread_local frame_cache* this_cache = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool cache_gone = false;

struct cache_owner {
    frame_cache cache;
    cache_owner() noexcept { this_cache = &cache; }
    ~cache_owner() {
        this_cache = nullptr;
        cache_gone = true;
    }
};

[[gnu::noinline]] frame_cache* make_cache() {
    if (cache_gone) return nullptr;
    thread_local cache_owner owner;
    return &owner.cache;
}

frame_cache* this_thread_cache() { return this_cache != nullptr ? this_cache : make_cache(); }

constexpr bool recyclable(std::size_t size_bytes) noexcept {
    return SLUICE_RECYCLE_FRAMES != 0 && size_bytes != 0 && size_bytes <= largest_bytes;
}

} // namespace

void* allocate_frame(std::size_t size_bytes) {
    frame_cache* local = this_thread_cache();
    if (local == nullptr) return ::operator new(size_bytes);
    ++local->stats.live;
    if (!recyclable(size_bytes)) {
        ++local->stats.fresh;
        return ::operator new(size_bytes);
    }
    const frame_class c = class_of(size_bytes);
    if (free_block* block = local->lists[c.index]; block != nullptr) {
        local->lists[c.index] = block->next;
        local->free_bytes[c.index] -= c.block_bytes;
        ++local->stats.recycled;
        return block;
    }
    ++local->stats.fresh;
    return ::operator new(c.block_bytes);
}

void free_frame(void* frame, std::size_t size_bytes) noexcept {
    frame_cache* local = this_thread_cache();
    if (local != nullptr) --local->stats.live;
    if (local == nullptr || !recyclable(size_bytes)) {
        ::operator delete(frame);
        return;
    }
    const frame_class c = class_of(size_bytes);
    if (local->free_bytes[c.index] + c.block_bytes > free_bytes_max) {
        ::operator delete(frame);
        return;
    }
    local->lists[c.index] = ::new (frame) free_block{local->lists[c.index]};
    local->free_bytes[c.index] += c.block_bytes;
}

frame_stats this_thread_frame_stats() noexcept {
    const frame_cache* local = this_thread_cache();
    return local == nullptr ? frame_stats{} : local->stats;
}

} // namespace sluice::detail
