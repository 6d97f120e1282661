#pragma once

#include <sluice/result.hpp>
#include <sluice/task.hpp>

namespace store {

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT as something to wait for; the last two not where they were ignored before. Made before any thread is started, so that all of them leave the
/// signals to it. Thread rule: made on the main thread, awaited on one executor.
class stop_signals {
public:
    stop_signals();
    ~stop_signals();
    stop_signals(const stop_signals&) = delete;
    stop_signals& operator=(const stop_signals&) = delete;

    /// The number of the next signal. Errors: `condition::canceled`.
    sluice::task<sluice::result<int>> next();

private:
    int fd_; ///< signalfd(2), or -1 when there is none and signals act as they always do
};

/// Runs `work` until it ends or a signal comes, which asks it to stop and waits for it. Gives what `work` returned, or
/// 128 plus the signal's number as a shell would.
sluice::task<int> until_signal(stop_signals& signals, sluice::task<int> work);

} // namespace store
