#pragma once

#include <csignal>
#include <ctime>
#include <pthread.h>

namespace sluice::rdma {

/// While it lives, no SIGPIPE reaches this thread that it had not coming: for calls into a driver that writes to a
/// socket without MSG_NOSIGNAL. The program's own disposition of the signal stays as it is.
class no_sigpipe {
public:
    explicit no_sigpipe(bool needed) noexcept : active_(needed) {
        if (!active_) return;
        sigset_t pending;
        sigpending(&pending);
        active_ = sigismember(&pending, SIGPIPE) == 0; // one that waits already stays
        if (!active_) return;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~no_sigpipe() {
        if (!active_) return;
        const timespec at_once{};
        sigtimedwait(&pipe_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    no_sigpipe(const no_sigpipe&) = delete;
    no_sigpipe& operator=(const no_sigpipe&) = delete;

private:
    bool active_;
    sigset_t pipe_;
    sigset_t before_;
};

} // namespace sluice::rdma
