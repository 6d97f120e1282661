#include "examples/object_store/signals.hpp"

#include <sluice/operation.hpp>
#include <sluice/when_any.hpp>

#include <cerrno>
#include <csignal>
#include <utility>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace store {

namespace {

/// nohup(1) and shells ask for the rest of a life without this signal; a blocked one would come all the same.
bool is_ignored(int number) noexcept {
    struct sigaction now {};
    return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

sigset_t stopping_signals() noexcept {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    for (const int number : {SIGHUP, SIGQUIT})
        if (!is_ignored(number)) sigaddset(&set, number);
    return set;
}

sluice::task<int> number_of_next(stop_signals& signals) {
    auto number = co_await signals.next();
    co_return number.value_or(0);
}

} // namespace

stop_signals::stop_signals() : fd_(-1) {
    const sigset_t set = stopping_signals();
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ >= 0) pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::signal(SIGPIPE, SIG_IGN); // a closed standard output is an error of a write, not the end
}

stop_signals::~stop_signals() {
    if (fd_ >= 0) close(fd_);
}

sluice::task<sluice::result<int>> stop_signals::next() {
    for (;;) {
        auto ready = co_await sluice::readiness(fd_, POLLIN);
        if (!ready) co_return std::move(ready).error();
        signalfd_siginfo info{};
        if (read(fd_, &info, sizeof info) == sizeof info) co_return static_cast<int>(info.ssi_signo);
        if (errno != EAGAIN && errno != EINTR) co_return sluice::error::from_errno(errno, "signalfd");
    }
}

sluice::task<int> until_signal(stop_signals& signals, sluice::task<int> work) {
    constexpr int shell_signal_base = 128;
    auto first = co_await sluice::when_any(std::move(work), number_of_next(signals));
    if (first.index == 0) co_return first.value;
    co_return shell_signal_base + first.value;
}

} // namespace store
