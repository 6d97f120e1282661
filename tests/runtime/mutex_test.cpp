#include <sluice/mutex.hpp>
#include <sluice/scope.hpp>

#include "tests/support/run.hpp"
#include "tests/support/stopped.hpp"

#include <string>

using sluice::mutex;
using sluice::result;
using sluice::task;
using sluice::testing::check_ok;
using sluice::testing::run;
using sluice::testing::run_stopped;
using sluice::testing::yields;

namespace {

task<void> write_word(mutex& m, std::string& text, const char* word) {
    const auto guard = co_await m.lock();
    if (!guard) {
        text += '-';
        co_return;
    }
    for (const char* c = word; *c != '\0'; ++c) {
        text += *c;
        co_await sluice::yield();
    }
}

task<result<void>> lock_once(mutex& m) {
    const auto guard = co_await m.lock();
    if (!guard) co_return guard.error();
    co_return {};
}

} // namespace

TEST_CASE("Mutex.keeps_others_out_across_suspensions_and_serves_in_order") {
    const auto body = []() -> task<void> {
        mutex m;
        std::string text;
        sluice::scope writers;
        for (const char* word : {"one ", "two ", "three "}) writers.spawn(write_word(m, text, word));
        check_ok(co_await writers.join());
        CHECK(text == "one two three ");
        CHECK_FALSE(m.locked());
    };
    run(body());
}

TEST_CASE("Mutex.try_lock_takes_only_a_free_one") {
    const auto body = []() -> task<void> {
        mutex m;
        auto first = m.try_lock();
        CHECK(first.owns_lock());
        CHECK_FALSE(m.try_lock().owns_lock());
        first.unlock();
        CHECK_FALSE(first.owns_lock());
        first.unlock();
        auto second = co_await m.lock();
        REQUIRE(second);
        CHECK(second->owns_lock());
        auto moved = std::move(*second);
        CHECK(m.locked());
        moved = mutex::lock_guard();
        CHECK_FALSE(m.locked());
    };
    run(body());
}

TEST_CASE("Mutex.a_stopped_waiter_is_passed_over") {
    const auto body = []() -> task<void> {
        mutex m;
        std::string text;
        auto held = m.try_lock();
        sluice::scope stopped;
        sluice::scope kept;
        stopped.spawn(write_word(m, text, "never"));
        co_await yields(2);
        kept.spawn(write_word(m, text, "b"));
        co_await yields(2);
        stopped.request_stop();
        check_ok(co_await stopped.join());
        CHECK(text == "-");
        held.unlock();
        CHECK(m.locked()); // handed over, not free for whoever comes by
        check_ok(co_await kept.join());
        CHECK(text == "-b");
        CHECK_FALSE(m.locked());
    };
    run(body());
}

TEST_CASE("Mutex.is_canceled_while_it_waits_and_before") {
    mutex m;
    auto held = m.try_lock();
    for (const bool before : {false, true}) {
        const auto r = run_stopped(lock_once(m), before);
        REQUIRE_FALSE(r);
        CHECK(r.error() == sluice::condition::canceled);
    }
    held.unlock();
    CHECK_FALSE(run_stopped(lock_once(m), true));
    CHECK_FALSE(m.locked());
}
