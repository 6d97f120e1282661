#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace sluice::conformance {

/// A process of its own for one end of a connection, with a pipe in each direction. Made while the test has no other
/// threads, that is before its runtime and its watchdog.
class child_process {
public:
    /// What the child uses to talk with the test. Lines end with a newline.
    struct channel {
        int in = -1;
        int out = -1;
        void say(std::string_view line) const;
        std::string hear() const; ///< empty at the end
    };

    /// Forks; the child runs `body` and ends, with status 0 unless an exception leaves it. It ends itself after two
    /// minutes.
    explicit child_process(const std::function<void(const channel&)>& body);
    /// Kills and joins it.
    ~child_process();
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;

    const channel& pipes() const noexcept { return pipes_; }
    /// kill -9, and waits until the kernel has taken the process apart. Idempotent.
    void kill_now() noexcept;

private:
    channel pipes_;
    pid_t id_ = -1;
};

} // namespace sluice::conformance
