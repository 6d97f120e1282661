#include <sluice/on.hpp>
#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>
#include <sluice/timeout.hpp>

#include "tests/support/run.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using sluice::errc;
using sluice::result;
using sluice::task;
using sluice::testing::check_ok;
using sluice::testing::make_executor;

namespace {

/// An executor that runs on a thread of its own until this goes.
class other_executor {
public:
    other_executor() : thread_([this] { body(); }), executor_(made_.get_future().get()) {}
    ~other_executor() {
        executor_->stop();
        thread_.join();
    }
    sluice::executor& get() const { return *executor_; }
    std::thread::id id() const { return thread_.get_id(); }

private:
    void body() {
        auto made = sluice::executor::create();
        made_.set_value(made ? made->get() : nullptr);
        if (made) (*made)->run();
    }
    std::promise<sluice::executor*> made_;
    std::thread thread_;
    sluice::executor* executor_;
};

task<std::thread::id> where() {
    static_cast<void>(co_await sluice::nop());
    co_return std::this_thread::get_id();
}

task<result<void>> sleeps_long() { co_return co_await sluice::sleep_for(1h); }

} // namespace

TEST_CASE("On.runs_there_and_resumes_here") {
    const auto home = make_executor();
    const other_executor other;
    const auto body = [](sluice::executor& there) -> task<std::thread::id> {
        const auto here = std::this_thread::get_id();
        const auto id = co_await sluice::on(there, where());
        CHECK(std::this_thread::get_id() == here);
        co_return id;
    };
    CHECK(sluice::sync_wait(*home, body(other.get())) == other.id());
    CHECK(sluice::sync_wait(*home, body(*home)) == std::this_thread::get_id());
}

TEST_CASE("On.carries_values_both_ways_and_void_and_exceptions") {
    const auto home = make_executor();
    const other_executor other;
    const auto grow = [](std::unique_ptr<std::string> text) -> task<std::unique_ptr<std::string>> {
        *text += " there and back";
        co_return text;
    };
    const auto touch = [](int& value) -> task<void> {
        value = 7;
        co_return;
    };
    const auto throws = []() -> task<int> { throw std::runtime_error("from there"); co_return 0; };
    const auto body = [](sluice::executor& there, auto g, auto t, auto x) -> task<void> {
        const auto text = co_await sluice::on(there, g(std::make_unique<std::string>("hello")));
        CHECK(*text == "hello there and back");
        int value = 0;
        co_await sluice::on(there, t(value));
        CHECK(value == 7);
        std::string what;
        try {
            co_await sluice::on(there, x());
        } catch (const std::runtime_error& e) {
            what = e.what();
        }
        CHECK(what == "from there");
    };
    sluice::sync_wait(*home, body(other.get(), grow, touch, throws));
}

TEST_CASE("On.forwards_a_stop_and_waits_for_the_task") {
    const auto home = make_executor();
    const other_executor other;
    const auto body = [](sluice::executor& there) -> task<void> {
        const auto late = co_await sluice::timeout(1ms, sluice::on(there, sleeps_long()));
        REQUIRE_FALSE(late);
        CHECK(late.error().code() == errc::deadline_exceeded);
    };
    sluice::sync_wait(*home, body(other.get()));
    sluice::stop_source source;
    source.request_stop();
    const auto r = sluice::sync_wait(*home, sluice::on(other.get(), sleeps_long()), source.token());
    REQUIRE_FALSE(r);
    CHECK(r.error().code() == errc::canceled);
}

TEST_CASE("On.a_stop_that_crosses_the_end_of_the_task_is_harmless") {
    const auto home = make_executor();
    const other_executor other;
    const auto short_work = []() -> task<result<int>> {
        const auto r = co_await sluice::nop();
        if (!r) co_return r.error();
        co_return 1;
    };
    const auto stop_soon = [](sluice::scope& s, int turns) -> task<void> {
        co_await sluice::testing::yields(turns);
        s.request_stop();
    };
    const auto call = [](sluice::executor& there, auto work, int& ended) -> task<void> {
        const auto r = co_await sluice::on(there, work());
        CHECK((r || r.error() == sluice::condition::canceled));
        ++ended;
    };
    const auto body = [](sluice::executor& there, auto work, auto stop, auto calls) -> task<int> {
        int ended = 0;
        for (int i = 0; i < 2000; ++i) {
            sluice::scope callers;
            sluice::scope stopper;
            callers.spawn(calls(there, work, ended));
            stopper.spawn(stop(callers, i % 50));
            check_ok(co_await callers.join());
            check_ok(co_await stopper.join());
        }
        co_return ended;
    };
    CHECK(sluice::sync_wait(*home, body(other.get(), short_work, stop_soon, call)) == 2000);
}

TEST_CASE("On.two_executors_call_each_other_at_once") {
    const auto home = make_executor();
    const other_executor other;
    struct play {
        static task<int> leaf(int value) {
            static_cast<void>(co_await sluice::nop());
            co_return value;
        }
        /// There, and from there back here.
        static task<int> bounce(sluice::executor& here, sluice::executor& there, int depth) {
            if (depth == 0) co_return co_await leaf(1);
            co_return 1 + co_await sluice::on(there, bounce(there, here, depth - 1));
        }
        static task<void> run(sluice::executor& here, sluice::executor& there, int count, int& sum) {
            for (int i = 0; i < count; ++i) sum += co_await bounce(here, there, 4);
        }
    };
    const auto body = [](sluice::executor& here, sluice::executor& there) -> task<int> {
        int sum = 0;
        sluice::scope players;
        for (int i = 0; i < 20; ++i) players.spawn(play::run(here, there, 50, sum));
        check_ok(co_await players.join());
        co_return sum;
    };
    CHECK(sluice::sync_wait(*home, body(*home, other.get())) == 20 * 50 * 5);
}
