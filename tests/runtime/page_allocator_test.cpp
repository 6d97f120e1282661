#include "runtime/page_allocator.hpp"
#include "tests/support/death.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <optional>
#include <random>
#include <vector>

using sluice::detail::page_allocator;

namespace {

/// The same, so simple that it is right.
class model {
public:
    explicit model(std::uint32_t pages) : free_(pages, true) {}

    std::optional<std::uint32_t> lowest(std::uint32_t count, std::uint32_t limit) const {
        for (std::uint32_t at = 0; at + count <= std::min<std::size_t>(limit, free_.size()); ++at)
            if (is(at, count, true)) return at;
        return std::nullopt;
    }
    std::optional<std::uint32_t> highest(std::uint32_t count) const {
        for (auto at = static_cast<std::int64_t>(free_.size()) - count; at >= 0; --at)
            if (is(static_cast<std::uint32_t>(at), count, true)) return static_cast<std::uint32_t>(at);
        return std::nullopt;
    }
    std::uint32_t longest() const {
        std::uint32_t best = 0;
        std::uint32_t run = 0;
        for (const bool each : free_) best = std::max(best, run = each ? run + 1 : 0);
        return best;
    }
    bool is(std::uint32_t first, std::uint32_t count, bool free) const {
        return std::all_of(free_.begin() + first, free_.begin() + first + count, [free](bool b) { return b == free; });
    }
    void set(std::uint32_t first, std::uint32_t count, bool free) {
        std::fill(free_.begin() + first, free_.begin() + first + count, free);
    }

private:
    std::vector<bool> free_;
};

struct run {
    std::uint32_t first;
    std::uint32_t count;
};

} // namespace

TEST_CASE("Page_allocator.agrees_with_a_simple_model_over_random_histories") {
    const auto pages = GENERATE(1U, 2U, 63U, 64U, 65U, 127U, 128U, 129U, 200U, 1000U, 1024U, 1537U);
    page_allocator allocator(pages);
    model expected(pages);
    std::vector<run> live;
    std::mt19937 random(pages);
    const auto below = [&random](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    for (int step = 0; step < 3000; ++step) {
        const bool grow = below(1000) < (step / 500 % 2 == 0 ? 700U : 300U); // fills and empties in turn
        if (grow) {
            const std::uint32_t count = 1 + below(below(4) == 0 ? pages : std::min(pages, 90U));
            const std::uint32_t limit = below(3) == 0 ? below(pages + 1) : pages;
            const bool high = below(2) == 0;
            const auto want = high ? expected.highest(count) : expected.lowest(count, limit);
            const auto got = high ? allocator.take_highest(count) : allocator.take_lowest(count, limit);
            REQUIRE(got == want);
            if (got) {
                expected.set(*got, count, false);
                live.push_back({*got, count});
            }
        } else if (!live.empty()) {
            std::swap(live[below(static_cast<std::uint32_t>(live.size()))], live.back());
            run gone = live.back();
            live.pop_back();
            if (gone.count > 1 && below(4) == 0) { // a part of a run may come back alone
                const std::uint32_t kept = 1 + below(gone.count - 1);
                live.push_back({gone.first, kept});
                gone = {gone.first + kept, gone.count - kept};
            }
            allocator.give_back(gone.first, gone.count);
            expected.set(gone.first, gone.count, true);
        }
        REQUIRE(allocator.longest_free_run() == expected.longest());
    }
    for (const run& each : live) allocator.give_back(each.first, each.count);
    CHECK(allocator.longest_free_run() == pages);
}

TEST_CASE("Page_allocator.serves_any_size_up_to_the_whole_when_all_is_back") {
    const std::uint32_t pages = 1536; // no power of two
    page_allocator allocator(pages);
    for (std::uint32_t count = 1; count <= pages; ++count) {
        const auto low = allocator.take_lowest(count, pages);
        REQUIRE(low == 0U);
        allocator.give_back(0, count);
        const auto high = allocator.take_highest(count);
        REQUIRE(high == pages - count);
        allocator.give_back(*high, count);
    }
}

TEST_CASE("Page_allocator.uses_exactly_the_pages_asked_for") {
    page_allocator allocator(64);
    std::vector<std::uint32_t> taken;
    while (const auto first = allocator.take_lowest(5, 64)) taken.push_back(*first);
    CHECK(taken == std::vector<std::uint32_t>{0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55});
    CHECK(allocator.longest_free_run() == 4);
}

TEST_CASE("Page_allocator.joins_freed_neighbours") {
    page_allocator allocator(256);
    for (std::uint32_t i = 0; i < 256; ++i) REQUIRE(allocator.take_lowest(1, 256) == i);
    CHECK(allocator.longest_free_run() == 0);
    for (std::uint32_t i = 0; i < 256; i += 2) allocator.give_back(i, 1);
    CHECK(allocator.longest_free_run() == 1);
    for (std::uint32_t i = 63; i < 193; i += 2) allocator.give_back(i, 1);
    CHECK(allocator.longest_free_run() == 131);
    CHECK(allocator.take_lowest(131, 256) == 62U);
}

TEST_CASE("Page_allocator.keeps_below_the_limit") {
    page_allocator allocator(100);
    CHECK(allocator.take_lowest(81, 80) == std::nullopt);
    CHECK(allocator.take_lowest(80, 80) == 0U);
    CHECK(allocator.take_lowest(1, 80) == std::nullopt);
    CHECK(allocator.take_highest(20) == 80U);
    CHECK(allocator.take_highest(1) == std::nullopt);
}

TEST_CASE("Page_allocator.manages_a_tebibyte") {
    page_allocator allocator(page_allocator::pages_max);
    CHECK(allocator.take_lowest(page_allocator::pages_max - 3, page_allocator::pages_max) == 0U);
    CHECK(allocator.take_highest(3) == page_allocator::pages_max - 3);
    CHECK(allocator.longest_free_run() == 0);
    allocator.give_back(0, page_allocator::pages_max - 3);
    CHECK(allocator.longest_free_run() == page_allocator::pages_max - 3);
}

TEST_CASE("Page_allocator.pages_given_back_twice_stop_the_process") {
    CHECK_BREAKS_CONTRACT("given back twice", page_allocator a(100); static_cast<void>(a.take_lowest(10, 100));
                          a.give_back(0, 10); a.give_back(3, 1));
    CHECK_BREAKS_CONTRACT("given back twice", page_allocator a(1000); static_cast<void>(a.take_lowest(10, 1000));
                          a.give_back(0, 1000));
    CHECK_BREAKS_CONTRACT("pages it doesn't have", page_allocator a(100); a.give_back(99, 2));
}
