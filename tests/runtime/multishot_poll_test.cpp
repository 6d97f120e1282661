#include <sluice/executor.hpp>
#include <sluice/operation.hpp>
#include <sluice/scope.hpp>
#include <sluice/sync_wait.hpp>

#include "runtime/multishot_poll.hpp"
#include "tests/support/run.hpp"

#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

using sluice::nop;
using sluice::stop_source;
using sluice::stop_token;
using sluice::task;
using sluice::testing::make_executor;

namespace {

/// A descriptor, and what a watcher of it has seen.
struct watched {
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int calls = 0;
    int calls_wanted = 1000; // then it says that it has enough
    std::uint32_t events = 0;
    std::int32_t ended = 1;
    stop_source stop;
    watched() { REQUIRE(fd >= 0); }
    ~watched() { close(fd); }
    watched(const watched&) = delete;
    watched& operator=(const watched&) = delete;
    void raise() const {
        const std::uint64_t one = 1;
        REQUIRE(write(fd, &one, sizeof one) == sizeof one);
    }
    void drain() const {
        std::uint64_t count = 0;
        REQUIRE(read(fd, &count, sizeof count) == sizeof count);
    }
    static bool on_ready(void* self, std::uint32_t events) noexcept {
        auto& w = *static_cast<watched*>(self);
        w.events = events;
        return ++w.calls < w.calls_wanted;
    }
};

task<void> watch(watched& w) {
    sluice::detail::multishot_poll poll(w.fd, POLLIN, &watched::on_ready, &w);
    w.ended = co_await poll;
}

/// Several times through the ring: what the kernel has to say has been heard.
task<void> settle() {
    for (int i = 0; i < 4; ++i) static_cast<void>(co_await nop());
}

task<void> raise_and_count(watched& w, int times) {
    const sluice::executor& home = co_await sluice::this_executor();
    sluice::scope all;
    all.spawn(watch(w));
    co_await settle();
    CHECK(w.calls == 0);
    const std::uint64_t before = home.stats().operations_started;
    for (int i = 1; i <= times; ++i) {
        w.raise();
        co_await settle();
        CHECK(w.calls == i);
        if (i % 2 == 0) w.drain(); // what is left is told of again when more comes
    }
    CHECK(home.stats().operations_started - before == 4U * static_cast<unsigned>(times)); // the NOPs alone
    CHECK(w.events == POLLIN);
    all.request_stop();
    static_cast<void>(co_await all.join());
}

task<void> raise_after_enough(watched& w) {
    sluice::scope all;
    all.spawn(watch(w));
    for (int i = 0; i < 3; ++i) {
        w.raise();
        co_await settle();
    }
    CHECK(w.calls == 2);
    all.request_stop();
    static_cast<void>(co_await all.join());
}

} // namespace

TEST_CASE("Multishot_poll.one_request_tells_of_every_event_until_it_is_canceled") {
    const auto home = make_executor();
    watched w;
    sluice::sync_wait(*home, raise_and_count(w, 5));
    CHECK(w.calls == 5);
    CHECK(w.ended == -ECANCELED);
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("Multishot_poll.who_has_said_that_it_is_enough_is_not_called_again") {
    const auto home = make_executor();
    watched w;
    w.calls_wanted = 2;
    sluice::sync_wait(*home, raise_after_enough(w));
    CHECK(w.calls == 2);
    CHECK(w.ended == -ECANCELED); // the kernel goes on until it is told otherwise
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("Multishot_poll.what_the_kernel_refuses_ends_it") {
    const auto home = make_executor();
    watched w;
    const int kept = w.fd;
    w.fd = 1 << 20; // no descriptor
    sluice::sync_wait(*home, watch(w));
    w.fd = kept;
    CHECK(w.ended == -EBADF);
    CHECK(w.calls == 0);
}
