// The way of an operation from co_await to the kernel: queued, withdrawn, delayed.
#include "tests/support/run.hpp"

#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>

#include <array>
#include <chrono>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace {

/// A descriptor that never becomes ready, so that readiness() stays with the kernel until it is canceled.
struct never_ready {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ~never_ready() { close(fd); }
};

sluice::task<void> wait_forever(int fd, int& canceled) {
    auto ready = co_await sluice::readiness(fd, POLLIN);
    if (!ready && ready.error() == sluice::condition::canceled) ++canceled;
}

sluice::task<void> one_nop(int& done) {
    const auto r = co_await sluice::nop();
    if (r) ++done;
}

/// More than a ring of this size holds.
constexpr sluice::executor_options small_ring{.submission_entries = 4, .completion_entries = 16};

sluice::task<bool> nops_at_once(int how_many, int& done) {
    sluice::scope all;
    for (int i = 0; i < how_many; ++i) all.spawn(one_nop(done));
    const auto joined = co_await all.join();
    co_return joined.has_value();
}

sluice::task<void> stop_all(sluice::scope& family) {
    family.request_stop();
    co_return;
}

sluice::task<bool> start_ten_and_stop_them_in_the_same_turn(int fd, int& canceled) {
    sluice::scope all;
    for (int i = 0; i < 10; ++i) all.spawn(wait_forever(fd, canceled));
    all.spawn(stop_all(all)); // runs last, when the ten have started
    const auto joined = co_await all.join();
    co_return joined.has_value();
}

sluice::task<bool> cancel_the_delayed_first(int fd, std::array<int, 2>& canceled) {
    sluice::scope first;
    sluice::scope second;
    for (int i = 0; i < 8; ++i) first.spawn(wait_forever(fd, canceled[0]));    // all that the ring may hold
    for (int i = 0; i < 100; ++i) second.spawn(wait_forever(fd, canceled[1])); // must wait
    // A turn, so that the kernel has what it takes.
    static_cast<void>(co_await sluice::sleep_for(std::chrono::nanoseconds(0)));
    second.request_stop();
    const auto second_joined = co_await second.join(); // although none of the first has ended
    const bool first_goes_on = canceled[0] == 0;
    first.request_stop();
    const auto first_joined = co_await first.join();
    co_return second_joined.has_value() && first_joined.has_value() && first_goes_on;
}

sluice::task<bool> work_beside_idle_ones(int fd, int idle, int& canceled) {
    sluice::scope waiting;
    for (int i = 0; i < idle; ++i) waiting.spawn(wait_forever(fd, canceled));
    bool good = true;
    for (int i = 0; i < 10; ++i) {
        const auto done = co_await sluice::nop();
        good = good && done.has_value();
    }
    waiting.request_stop();
    const auto joined = co_await waiting.join();
    co_return good && joined.has_value();
}

} // namespace

TEST_CASE("Submission.many_more_operations_than_the_rings_hold_all_complete") {
    const auto home = sluice::testing::make_executor(small_ring);
    int done = 0;
    CHECK(sluice::sync_wait(*home, nops_at_once(1000, done)));
    CHECK(done == 1000);
    CHECK(home->stats().operations_delayed > 0);
    CHECK(home->stats().operations_started == 1000);
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("Submission.a_stop_before_the_turn_ends_withdraws_what_was_started") {
    const auto home = sluice::testing::make_executor();
    const never_ready quiet;
    int canceled = 0;
    CHECK(sluice::sync_wait(*home, start_ten_and_stop_them_in_the_same_turn(quiet.fd, canceled)));
    CHECK(canceled == 10);
    CHECK(home->stats().operations_started == 0);
}

TEST_CASE("Submission.delayed_operations_are_canceled_while_the_ring_stays_full") {
    const auto home = sluice::testing::make_executor(small_ring);
    const never_ready quiet;
    std::array<int, 2> canceled{};
    CHECK(sluice::sync_wait(*home, cancel_the_delayed_first(quiet.fd, canceled)));
    CHECK(canceled == std::array{8, 100});
    CHECK(home->stats().operations_delayed == 100);
    CHECK(home->stats().operations_started == 8);
}

TEST_CASE("Submission.operations_without_end_hold_up_no_others_however_many_they_are") {
    const auto home = sluice::testing::make_executor(small_ring);
    const never_ready quiet;
    int canceled = 0;
    CHECK(sluice::sync_wait(*home, work_beside_idle_ones(quiet.fd, 3000, canceled)));
    CHECK(canceled == 3000); // all at once, into a queue of 16: the kernel keeps what doesn't fit
    CHECK(home->stats().operations_started == 3010);
    CHECK(home->stats().in_flight == 0);
}
