#include <sluice/detail/frame_allocator.hpp>
#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>

#include "tests/support/run.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;
using sluice::errc;
using sluice::result;
using sluice::task;
using sluice::testing::check_ok;
using sluice::testing::make_executor;
using sluice::testing::run;

namespace {

task<void> add(int& sum, int value) {
    static_cast<void>(co_await sluice::nop());
    sum += value;
}

task<result<void>> fail_with(errc code) {
    co_await sluice::yield();
    co_return code;
}

task<void> throw_after_a_turn(const char* what) {
    co_await sluice::yield();
    throw std::runtime_error(what);
}

task<result<void>> sleep_long(int& canceled) {
    const auto r = co_await sluice::sleep_for(1h);
    if (!r && r.error() == sluice::condition::canceled) ++canceled;
    co_return r;
}

} // namespace

TEST_CASE("Scope.join_waits_for_every_child") {
    const auto body = []() -> task<int> {
        int sum = 0;
        sluice::scope s;
        for (int i = 1; i <= 100; ++i) s.spawn(add(sum, i));
        CHECK(s.size() == 100);
        CHECK(sum == 0); // children start in a later turn
        check_ok(co_await s.join());
        CHECK(s.empty());
        co_return sum;
    };
    CHECK(run(body()) == 5050);
}

TEST_CASE("Scope.join_of_nothing_ends_at_once_and_a_scope_can_be_used_again") {
    const auto body = []() -> task<int> {
        int sum = 0;
        sluice::scope s;
        check_ok(co_await s.join());
        s.spawn(add(sum, 1));
        check_ok(co_await s.join());
        s.spawn(add(sum, 2));
        check_ok(co_await s.join());
        co_return sum;
    };
    CHECK(run(body()) == 3);
}

TEST_CASE("Scope.children_are_freed_when_they_end_and_not_at_the_join") {
    struct witness {
        int* gone;
        explicit witness(int& g) noexcept : gone(&g) {}
        witness(witness&& o) noexcept : gone(std::exchange(o.gone, nullptr)) {}
        ~witness() {
            if (gone != nullptr) ++*gone;
        }
    };
    const auto child = [](witness) -> task<void> { co_await sluice::yield(); };
    const auto body = [](auto make_child) -> task<void> {
        int gone = 0;
        sluice::scope s;
        for (int i = 0; i < 10; ++i) s.spawn(make_child(witness(gone)));
        co_await sluice::testing::yields(4);
        CHECK(gone == 10);
        CHECK(s.empty());
        check_ok(co_await s.join());
    };
    run(body(child));
}

TEST_CASE("Scope.join_returns_the_first_error_and_the_others_go_on") {
    const auto body = []() -> task<int> {
        int sum = 0;
        sluice::scope s;
        s.spawn(fail_with(errc::peer_lost));
        s.spawn(fail_with(errc::closed));
        s.spawn(add(sum, 7));
        const auto r = co_await s.join();
        REQUIRE_FALSE(r);
        CHECK(r.error().code() == errc::peer_lost);
        check_ok(co_await s.join()); // told once
        co_return sum;
    };
    CHECK(run(body()) == 7);
}

TEST_CASE("Scope.join_rethrows_the_first_exception_after_all_have_ended") {
    const auto body = []() -> task<int> {
        int sum = 0;
        sluice::scope s;
        s.spawn(fail_with(errc::closed));
        s.spawn(throw_after_a_turn("first"));
        s.spawn(throw_after_a_turn("second"));
        s.spawn(add(sum, 5));
        std::string what;
        try {
            static_cast<void>(co_await s.join());
        } catch (const std::runtime_error& e) {
            what = e.what();
        }
        CHECK(what == "first");
        CHECK(s.empty());
        co_return sum;
    };
    CHECK(run(body()) == 5);
}

TEST_CASE("Scope.request_stop_cancels_children_and_is_no_error_of_the_join") {
    const auto body = []() -> task<int> {
        int canceled = 0;
        sluice::scope s;
        for (int i = 0; i < 10; ++i) s.spawn(sleep_long(canceled));
        co_await sluice::yield();
        s.request_stop();
        check_ok(co_await s.join());
        s.spawn(sleep_long(canceled)); // under a token that is stopped already
        check_ok(co_await s.join());
        co_return canceled;
    };
    CHECK(run(body()) == 11);
}

TEST_CASE("Scope.a_stop_of_the_joining_task_reaches_the_children") {
    const auto home = make_executor();
    const auto joins = [](int& canceled) -> task<result<void>> {
        sluice::scope s;
        for (int i = 0; i < 10; ++i) s.spawn(sleep_long(canceled));
        co_return co_await s.join();
    };
    SECTION("while it joins") {
        int canceled = 0;
        sluice::stop_source source;
        std::thread stopper([&] { source.request_stop(); });
        const auto r = sluice::sync_wait(*home, joins(canceled), source.token());
        stopper.join();
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
        CHECK(canceled == 10);
    }
    SECTION("before it joins") {
        int canceled = 0;
        sluice::stop_source source;
        source.request_stop();
        const auto r = sluice::sync_wait(*home, joins(canceled), source.token());
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
        CHECK(canceled == 10);
    }
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("Scope.request_stop_from_another_thread_ends_the_children") {
    const auto body = []() -> task<int> {
        int canceled = 0;
        sluice::scope s;
        for (int i = 0; i < 10; ++i) s.spawn(sleep_long(canceled));
        std::thread stopper([&s] { s.request_stop(); });
        check_ok(co_await s.join());
        stopper.join();
        co_return canceled;
    };
    CHECK(run(body()) == 10);
}

TEST_CASE("Scope.children_may_spawn_more_while_the_scope_is_joined") {
    struct tree {
        static task<void> grow(sluice::scope& s, int& leaves, int depth) {
            co_await sluice::yield();
            if (depth == 0) {
                ++leaves;
                co_return;
            }
            s.spawn(grow(s, leaves, depth - 1));
            s.spawn(grow(s, leaves, depth - 1));
        }
    };
    const auto body = []() -> task<int> {
        int leaves = 0;
        sluice::scope s;
        s.spawn(tree::grow(s, leaves, 10));
        check_ok(co_await s.join());
        co_return leaves;
    };
    CHECK(run(body()) == 1024);
}

TEST_CASE("Scope.a_hundred_thousand_spawns_take_no_fresh_frame_once_warm") {
    const auto waves = [](int count, int& sum) -> task<void> {
        sluice::scope s;
        for (int i = 0; i < count; ++i) {
            for (int k = 0; k < 100; ++k) s.spawn(add(sum, 1));
            check_ok(co_await s.join());
        }
    };
    const auto home = make_executor();
    int sum = 0;
    sluice::sync_wait(*home, waves(10, sum));
    const auto before = sluice::detail::this_thread_frame_stats();
    sluice::sync_wait(*home, waves(1000, sum));
    const auto after = sluice::detail::this_thread_frame_stats();
    CHECK(sum == 101'000);
    CHECK(after.live == before.live);
    CHECK(home->stats().spawned == 101'002);
    if (after.recycled == 0) SKIP("frames are not recycled in this build"); // AddressSanitizer
    CHECK(after.fresh == before.fresh);
}

TEST_CASE("Scope.a_hundred_thousand_children_at_once") {
    const auto body = []() -> task<int> {
        int sum = 0;
        sluice::scope s;
        for (int i = 0; i < 100'000; ++i) s.spawn(add(sum, 1));
        check_ok(co_await s.join());
        co_return sum;
    };
    CHECK(run(body()) == 100'000);
}
