#pragma once

#include <sluice/task.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace sluice::conformance {

/// How long a test case may take: a minute, or ten where an emulated processor runs it.
std::chrono::seconds patience() noexcept;

/// Bounds every wait of a test: unless it goes within the limit the process stops and says which test hung.
class watchdog {
public:
    explicit watchdog(std::string what, std::chrono::seconds limit = patience());
    ~watchdog();
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;

private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool over_ = false;
    std::thread thread_;
};

/// Holds an executor's thread up, so that its agent serves nothing: what the peer sends stays where it is.
class gate {
public:
    /// Blocks until open() was called. On the thread to be held.
    void hold();
    /// Waits until a thread is held; the executor of the waiting task goes on meanwhile.
    task<void> until_held();
    void open();

    /// Opens it at the end of a block, however that ends.
    class opener {
    public:
        explicit opener(gate& g) noexcept : gate_(g) {}
        ~opener() { gate_.open(); }
        opener(const opener&) = delete;
        opener& operator=(const opener&) = delete;

    private:
        gate& gate_;
    };

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool held_ = false;
    bool open_ = false;
};

} // namespace sluice::conformance
