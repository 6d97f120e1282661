#include "tests/conformance/watchdog.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

namespace sluice::conformance {

namespace {

/// Where every thread stands, as far as the kernel tells: in which call, and for root the kernel's own stack
/// [proc_pid_stack(5)].
void tell_threads() {
    std::error_code gone;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
        std::cerr << "thread " << thread.path().filename().string() << '\n';
        for (const char* const what : {"comm", "wchan", "syscall", "stack"}) {
            std::ifstream file(thread.path() / what);
            if (file.peek() != std::ifstream::traits_type::eof()) std::cerr << what << ": " << file.rdbuf() << '\n';
        }
    }
}

} // namespace

std::chrono::seconds patience() noexcept {
    return std::getenv("SLUICE_RDMA_GUEST") == nullptr ? std::chrono::minutes(1) : std::chrono::minutes(10);
}

watchdog::watchdog(std::string what, std::chrono::seconds limit)
    : thread_([this, what = std::move(what), limit] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, limit, [this] { return over_; })) return;
          std::fprintf(stderr, "conformance: '%s' hangs: not done after %lld s\n", what.c_str(),
                       static_cast<long long>(limit.count()));
          tell_threads();
          std::abort();
      }) {}

watchdog::~watchdog() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    ended_.notify_one();
    thread_.join();
}

void gate::hold() {
    std::unique_lock lock(mutex_);
    held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
}

task<void> gate::until_held() {
    const auto held = [this] {
        const std::lock_guard lock(mutex_);
        return held_;
    };
    while (!held()) co_await yield();
}

void gate::open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
}

} // namespace sluice::conformance
