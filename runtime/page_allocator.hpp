#pragma once

#include <sluice/contract.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::detail {

/// Hands out runs of pages, numbered from 0, in O(log n), and fails only when no run is long enough: any request that
/// fits an empty range fits again once all is back, which a buddy allocator can't promise for sizes between powers of
/// two. Bookkeeping is 4 bits a page, allocated at the start.
///
/// A bitmap holds 64 pages a word, set bits are free. Over it stands a complete binary tree; each node knows the
/// longest free run inside its range and those that touch its ends. A node that is all free or all used speaks for
/// everything below it, which may then be out of date: so a long run costs no more than its two ends.
///
/// Thread rule: none; the pool's mutex guards it.
class page_allocator {
public:
    static constexpr std::uint32_t pages_max = std::uint32_t{1} << 28; // 1 TiB of 4 KiB pages

    explicit page_allocator(std::uint32_t pages)
        : pages_(pages), leaves_(std::bit_ceil(std::max(1U, (pages + 63) / 64))), words_(leaves_), nodes_(leaves_ * 2) {
        SLUICE_EXPECTS(pages > 0 && pages <= pages_max, "page allocator: 1..2^28 pages");
        set(1, 0, span_pages(), {0, pages, true}); // all nodes start as used; what lies past the end stays so
    }

    std::uint32_t pages() const noexcept { return pages_; }
    std::uint32_t longest_free_run() const noexcept { return nodes_[1].longest; }

    /// The run of `count` pages with the lowest number that ends at or before `limit`.
    std::optional<std::uint32_t> take_lowest(std::uint32_t count, std::uint32_t limit) noexcept {
        SLUICE_EXPECTS(count > 0, "page allocator: a run of no pages");
        if (nodes_[1].longest < count) return std::nullopt;
        const std::uint32_t first = find_lowest(count);
        if (limit < count || first > limit - count) return std::nullopt; // no other run starts lower
        set(1, 0, span_pages(), {first, first + count, false});
        return first;
    }
    /// The run of `count` pages with the highest number.
    std::optional<std::uint32_t> take_highest(std::uint32_t count) noexcept {
        SLUICE_EXPECTS(count > 0, "page allocator: a run of no pages");
        if (nodes_[1].longest < count) return std::nullopt;
        const std::uint32_t first = find_highest(count);
        set(1, 0, span_pages(), {first, first + count, false});
        return first;
    }
    void give_back(std::uint32_t first, std::uint32_t count) noexcept {
        SLUICE_EXPECTS(count > 0 && first < pages_ && count <= pages_ - first, "page allocator: pages it doesn't have");
        set(1, 0, span_pages(), {first, first + count, true});
    }

private:
    static constexpr std::uint32_t word_pages = 64;

    struct node {
        std::uint32_t prefix = 0; // free pages at the low end
        std::uint32_t suffix = 0; // free pages at the high end
        std::uint32_t longest = 0;
    };
    struct change {
        std::uint32_t first;
        std::uint32_t end;
        bool to_free;
    };

    std::uint32_t span_pages() const noexcept { return leaves_ * word_pages; }
    static node uniform(std::uint32_t size, bool free) noexcept {
        const std::uint32_t n = free ? size : 0;
        return {n, n, n};
    }
    /// Set bits at which a run of `count` (1..64) set bits starts.
    static std::uint64_t run_starts(std::uint64_t word, std::uint32_t count) noexcept {
        for (std::uint32_t known = 1; known < count;) {
            const std::uint32_t more = std::min(known, count - known);
            word &= word >> more;
            known += more;
        }
        return word;
    }
    static node summary(std::uint64_t word) noexcept {
        node s{static_cast<std::uint32_t>(std::countr_one(word)), static_cast<std::uint32_t>(std::countl_one(word)), 0};
        while (word != 0) {
            word >>= std::countr_zero(word);
            const auto run = static_cast<std::uint32_t>(std::countr_one(word));
            s.longest = std::max(s.longest, run);
            if (run == word_pages) break;
            word >>= run;
        }
        return s;
    }

    void set_word(std::uint32_t at, std::uint32_t low, change c) noexcept {
        std::uint64_t& word = words_[at - leaves_];
        const std::uint32_t from = std::max(c.first, low) - low;
        const std::uint32_t to = std::min(c.end, low + word_pages) - low;
        const std::uint64_t mask = (~std::uint64_t{0} >> (word_pages - (to - from))) << from;
        SLUICE_EXPECTS((word & mask) == (c.to_free ? 0 : mask), "page allocator: pages given back twice, or taken twice");
        word ^= mask;
        nodes_[at] = summary(word);
    }
    /// Brings what lies below an all-free or all-used node up to date.
    void push_down(std::uint32_t at, std::uint32_t size) noexcept {
        const std::uint32_t longest = nodes_[at].longest;
        if (longest != 0 && longest != size) return;
        for (const std::uint32_t child : {2 * at, 2 * at + 1}) {
            nodes_[child] = uniform(size / 2, longest != 0);
            if (child >= leaves_) words_[child - leaves_] = longest != 0 ? ~std::uint64_t{0} : 0;
        }
    }
    void pull_up(std::uint32_t at, std::uint32_t size) noexcept {
        const node& low = nodes_[2 * at];
        const node& high = nodes_[2 * at + 1];
        const std::uint32_t half = size / 2;
        nodes_[at] = {low.prefix == half ? half + high.prefix : low.prefix,
                      high.suffix == half ? half + low.suffix : high.suffix,
                      std::max({low.longest, high.longest, low.suffix + high.prefix})};
    }
    /// Applies the change to node `at`, which covers `size` pages from `low`. At most 23 levels deep.
    void set(std::uint32_t at, std::uint32_t low, std::uint32_t size, change c) noexcept {
        if (at >= leaves_) {
            set_word(at, low, c);
            return;
        }
        if (c.first <= low && low + size <= c.end) {
            SLUICE_EXPECTS(nodes_[at].longest == (c.to_free ? 0 : size),
                           "page allocator: pages given back twice, or taken twice");
            nodes_[at] = uniform(size, c.to_free);
            return;
        }
        push_down(at, size);
        const std::uint32_t middle = low + size / 2;
        if (c.first < middle) set(2 * at, low, size / 2, c);
        if (c.end > middle) set(2 * at + 1, middle, size / 2, c);
        pull_up(at, size);
    }

    std::uint32_t find_lowest(std::uint32_t count) const noexcept {
        std::uint32_t at = 1;
        std::uint32_t low = 0;
        for (std::uint32_t size = span_pages();; size /= 2) {
            if (nodes_[at].longest == size) return low;
            if (at >= leaves_)
                return low + static_cast<std::uint32_t>(std::countr_zero(run_starts(words_[at - leaves_], count)));
            const node& left = nodes_[2 * at];
            at = 2 * at;
            if (left.longest >= count) continue;
            if (left.suffix + nodes_[at + 1].prefix >= count) return low + size / 2 - left.suffix;
            ++at;
            low += size / 2;
        }
    }
    std::uint32_t find_highest(std::uint32_t count) const noexcept {
        std::uint32_t at = 1;
        std::uint32_t low = 0;
        for (std::uint32_t size = span_pages();; size /= 2) {
            if (nodes_[at].longest == size) return low + size - count;
            if (at >= leaves_)
                return low + 63 - static_cast<std::uint32_t>(std::countl_zero(run_starts(words_[at - leaves_], count)));
            const node& right = nodes_[2 * at + 1];
            at = 2 * at;
            if (right.longest >= count) {
                ++at;
                low += size / 2;
            } else if (nodes_[at].suffix + right.prefix >= count) {
                return low + size / 2 + right.prefix - count;
            }
        }
    }

    // constant after construction
    std::uint32_t pages_;
    std::uint32_t leaves_; // a power of two; node i has the children 2i and 2i+1, the leaves come last

    std::vector<std::uint64_t> words_;
    std::vector<node> nodes_;
};

} // namespace sluice::detail
