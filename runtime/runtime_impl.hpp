#pragma once

#include <sluice/runtime.hpp>

#include <algorithm>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sluice {

struct runtime::impl {
    struct executor_thread {
        std::thread thread;
        executor* home = nullptr; ///< lives on the thread's stack, until stop()
        error failure{errc::closed};
    };

    impl() = default;
    impl(const impl&) = delete;
    impl& operator=(const impl&) = delete;
    ~impl();

    result<void> start(const runtime_options& wanted);
    bool owns(const executor& home) const noexcept {
        return std::any_of(threads.begin(), threads.end(), [&](const executor_thread& t) { return t.home == &home; });
    }

    // constant after start
    runtime_options options;
    std::uint64_t owner = 0; ///< stands in every remote_region that this runtime shares
    std::unique_ptr<memory_pool> pool; // outlives the threads, whose rings hold its pages
    std::vector<executor_thread> threads;

private:
    void run_executor(executor_thread& slot, const executor_options& mine, std::latch& started);
};

namespace detail {
///@{
/// Defined by net/, which knows the providers. Whether connections over RDMA can be made on this machine by these
/// devices, which may block; and whether the text is one that chooses devices. Else why not.
result<void> rdma_usable(const std::string& devices);
result<void> check_rdma_devices(const std::string& devices);
///@}
} // namespace detail

} // namespace sluice
