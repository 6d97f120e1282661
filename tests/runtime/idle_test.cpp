#include <sluice/executor.hpp>
#include <sluice/operation.hpp>
#include <sluice/sleep.hpp>
#include <sluice/timeout.hpp>

#include "runtime/inbox.hpp"
#include "tests/support/run.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace std::chrono_literals;
using sluice::result;
using sluice::task;
using sluice::detail::inbox;
using sluice::detail::posted_node;
using sluice::testing::check_ok;
using sluice::testing::make_executor;

namespace {

/// How often a thread was given a processor so far, by its own will or not [proc_pid_status(5)]. A thread whose number
/// stands still has made no system call and had no wake-up.
std::uint64_t switches_of(pid_t thread) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    std::uint64_t sum = 0;
    for (std::string line; std::getline(status, line);)
        if (line.find("voluntary_ctxt_switches:") != std::string::npos) sum += std::stoull(line.substr(line.find(':') + 1));
    return sum;
}

task<result<std::uint32_t>> watch(int fd) { co_return co_await sluice::readiness(fd, POLLIN); }

/// A node that another thread posts, and whose run it can wait for.
struct ping : posted_node {
    std::atomic<int>* arrived;
    std::atomic<bool> back{true};
    explicit ping(std::atomic<int>& count) : arrived(&count) {
        posted_node::run = [](posted_node& node) noexcept {
            auto& self = static_cast<ping&>(node);
            self.arrived->fetch_add(1, std::memory_order_relaxed);
            self.back.store(true, std::memory_order_release);
        };
    }
    void post_and_wait(sluice::executor& home) {
        back.store(false, std::memory_order_relaxed);
        home.post(*this);
        while (!back.load(std::memory_order_acquire)) std::this_thread::yield();
    }
};

} // namespace

TEST_CASE("Idle.an_executor_that_waits_for_an_idle_descriptor_does_nothing_at_all") {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    std::atomic<pid_t> id{0};
    sluice::executor_stats before;
    sluice::executor_stats after;
    bool saw_it = false;
    std::thread thread([&] {
        auto home = sluice::executor::create();
        if (!home) return;
        before = (*home)->stats();
        id = gettid();
        const auto r = sluice::sync_wait(**home, watch(fd));
        saw_it = r.has_value();
        after = (*home)->stats();
    });
    while (id == 0) std::this_thread::yield();
    // It may still be on its way to sleep in the first of these windows, but not in all of them.
    std::uint64_t fewest = UINT64_MAX;
    for (int window = 0; window < 20 && fewest != 0; ++window) {
        const std::uint64_t start = switches_of(id);
        std::this_thread::sleep_for(100ms);
        fewest = std::min(fewest, switches_of(id) - start);
    }
    CHECK(fewest == 0);
    const std::uint64_t one = 1;
    REQUIRE(write(fd, &one, sizeof one) == sizeof one);
    thread.join();
    CHECK(saw_it);
    // The wake-up's own poll may complete once while it is set up, so the sleep may take a second turn; never more.
    CHECK(after.sleeps - before.sleeps >= 1);
    CHECK(after.sleeps - before.sleeps <= 2);
    CHECK(after.enters - before.enters <= 3);
    CHECK(after.wakes_sent == 0);
    close(fd);
}

TEST_CASE("Idle.each_timer_costs_one_sleep") {
    const auto home = make_executor();
    const auto body = [](int count) -> task<void> {
        for (int i = 0; i < count; ++i) check_ok(co_await sluice::sleep_for(2ms));
    };
    sluice::sync_wait(*home, body(1));
    const auto before = home->stats();
    sluice::sync_wait(*home, body(20));
    const auto after = home->stats();
    CHECK(after.sleeps - before.sleeps == 20);
    CHECK(after.enters - before.enters == 20);
    CHECK(after.wakes_sent == before.wakes_sent);
}

TEST_CASE("Inbox.a_post_wakes_a_sleeper_once_and_a_busy_one_never") {
    inbox box;
    std::vector<int> order;
    struct entry : posted_node {
        std::vector<int>* order = nullptr;
        int value = 0;
    };
    std::vector<entry> nodes(5);
    for (int i = 0; i < 5; ++i) {
        nodes[static_cast<std::size_t>(i)].order = &order;
        nodes[static_cast<std::size_t>(i)].value = i;
        nodes[static_cast<std::size_t>(i)].run = [](posted_node& n) noexcept {
            auto& e = static_cast<entry&>(n);
            e.order->push_back(e.value);
        };
    }
    CHECK_FALSE(box.push(nodes[0])); // busy
    CHECK_FALSE(box.announce_sleep());
    box.run_all();
    CHECK(box.announce_sleep());
    CHECK(box.announce_sleep()); // again without work: still announced
    CHECK(box.push(nodes[1]));
    CHECK_FALSE(box.push(nodes[2])); // the wake-up is on its way
    CHECK_FALSE(box.announce_sleep());
    box.run_all();
    CHECK(box.announce_sleep());
    box.cancel_sleep();
    CHECK_FALSE(box.push(nodes[3]));
    CHECK_FALSE(box.push(nodes[4]));
    box.forget(nodes[3]);
    box.run_all();
    CHECK(order == std::vector{0, 1, 2, 4});
}

TEST_CASE("Idle.posts_to_a_busy_executor_send_no_wake_up") {
    const auto home = make_executor();
    std::atomic<bool> busy{false};
    std::atomic<bool> finished{false};
    std::atomic<int> arrived{0};
    const auto spin = [](std::atomic<bool>& begun, std::atomic<bool>& end) -> task<void> {
        co_await sluice::testing::yields(1000);
        begun = true;
        while (!end) co_await sluice::yield();
    };
    std::thread poster([&] {
        while (!busy) std::this_thread::yield();
        ping p(arrived);
        for (int i = 0; i < 1000; ++i) p.post_and_wait(*home);
        finished = true;
    });
    const auto before = home->stats().wakes_sent;
    sluice::sync_wait(*home, spin(busy, finished));
    poster.join();
    CHECK(arrived == 1000);
    CHECK(home->stats().wakes_sent == before);
}

TEST_CASE("Idle.two_hundred_thousand_posts_from_two_threads_lose_no_wake_up") {
    constexpr int each = 100'000;
    const auto home = make_executor();
    std::atomic<int> arrived{0};
    std::atomic<int> finished{0};
    const auto poster = [&] {
        ping p(arrived);
        for (int i = 0; i < each; ++i) p.post_and_wait(*home); // the executor falls asleep between two of them
        ++finished;
        home->stop();
    };
    std::thread a(poster);
    std::thread b(poster);
    // A lost wake-up would leave it asleep until this is due.
    struct watchdog : sluice::detail::timer_node {
        bool barked = false;
    } dog;
    dog.deadline = sluice::detail::deadline_after(120s);
    dog.fire = [](sluice::detail::timer_node& t) noexcept { static_cast<watchdog&>(t).barked = true; };
    home->add_timer(dog);
    while (finished != 2 && !dog.barked) home->run();
    CHECK_FALSE(dog.barked);
    while (finished != 2) home->run();
    if (dog.linked) home->remove_timer(dog);
    a.join();
    b.join();
    CHECK(arrived == 2 * each);
    CHECK(home->stats().wakes_sent <= 2 * each + 2); // one for each post at most, and the two stops
}
