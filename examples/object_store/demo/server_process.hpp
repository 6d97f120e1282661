#pragma once

#include <sluice/result.hpp>

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace demo {

/// A sluice-store that serves a directory in a process of its own. Ends with this object, and with this process.
class server_process {
public:
    /// Starts `program serve directory` with further options, and waits until it listens, on a port that nobody uses.
    static sluice::result<server_process> start(const std::string& program, const std::string& directory,
                                                const std::vector<std::string>& options = {},
                                                const std::string& listen = "tcp://127.0.0.1:0");
    server_process(server_process&& other) noexcept;
    server_process& operator=(server_process&&) = delete;
    ~server_process();

    pid_t pid() const noexcept { return pid_; }
    const std::string& address() const noexcept { return address_; }
    /// Processor time that it has used, in seconds, to about 10 ms.
    double cpu_seconds() const;
    /// Asks it to end and waits. Errors: it did not end well.
    sluice::result<void> stop();

private:
    server_process(pid_t pid, std::string address) noexcept : pid_(pid), address_(std::move(address)) {}
    pid_t pid_;
    std::string address_;
};

} // namespace demo
