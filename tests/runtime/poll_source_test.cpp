#include <sluice/operation.hpp>
#include <sluice/sync_wait.hpp>

#include "runtime/poll_source.hpp"
#include "tests/support/run.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <vector>

using namespace sluice;
using sluice::testing::make_executor;

namespace {

struct source final : detail::poll_source {
    explicit source(executor& at) : home(at) { home.add_poll_source(*this); }
    ~source() { home.remove_poll_source(*this); }
    bool poll() noexcept override {
        ++polls;
        if (then) std::exchange(then, nullptr)();
        return false;
    }
    void arm() noexcept override { ++arms; }

    executor& home;
    int polls = 0;
    int arms = 0;
    std::function<void()> then;
};

task<void> round_trips(int count) {
    for (int i = 0; i < count; ++i) static_cast<void>(co_await nop());
}

} // namespace

TEST_CASE("Poll_source.every_source_is_polled_each_turn_and_armed_before_a_sleep") {
    const auto home = make_executor();
    source a(*home), b(*home);
    sync_wait(*home, round_trips(10));
    CHECK(a.polls >= 10);
    CHECK(b.polls == a.polls);
    CHECK(a.arms > 0);
    CHECK(a.arms == b.arms);
}

TEST_CASE("Poll_source.one_may_go_from_within_its_own_poll_and_take_others_along") {
    const auto home = make_executor();
    std::vector<std::unique_ptr<source>> all;
    for (int i = 0; i < 4; ++i) all.push_back(std::make_unique<source>(*home));
    source last(*home);
    SECTION("itself") {
        all[1]->then = [&] { all.erase(all.begin() + 1); };
        sync_wait(*home, round_trips(10));
        CHECK(all.size() == 3);
        CHECK(all.back()->polls >= 9);
    }
    SECTION("all but one") {
        all[0]->then = [&] { all.clear(); };
        sync_wait(*home, round_trips(10));
        CHECK(all.empty());
    }
    SECTION("and one may come") {
        all[3]->then = [&] {
            for (int i = 0; i < 100; ++i) all.push_back(std::make_unique<source>(*home));
        };
        sync_wait(*home, round_trips(10));
        CHECK(all.back()->polls >= 9);
    }
    CHECK(last.polls >= 9);
}
