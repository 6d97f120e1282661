#pragma once

#include "rdma/device.hpp"
#include "rdma/verbs.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sluice::rdma {

/// Hands the events of a device out to its observers, each on its own thread and in order, whoever read them.
///
/// Thread rule: thread-safe.
class device_events {
public:
    /// `alive` becomes false before anybody is told that the device is gone.
    device_events(ibv_context* context, const std::string& name, std::atomic<bool>& alive) noexcept
        : context_(context), name_(name), alive_(alive) {}
    ~device_events();
    device_events(const device_events&) = delete;
    device_events& operator=(const device_events&) = delete;

    ///@{
    /// As device::add and device::remove.
    void add(device_observer& observer);
    void remove(device_observer& observer) noexcept;
    ///@}
    /// Reads until there is none, acknowledging each at once: who destroys a queue pair waits for that. A device
    /// that can't be read is gone.
    void drain() noexcept;

private:
    struct event {
        ibv_event_type what;
        std::uint32_t qp_num = 0;
        std::uint8_t port = 0;
        const void* queue = nullptr;
    };
    struct listener;
    static event copy(const ibv_async_event& from) noexcept;
    bool read_all();
    void deliver(const std::shared_ptr<listener>& to) noexcept;

    ibv_context* context_; // constant
    const std::string& name_;
    std::atomic<bool>& alive_; // any thread
    std::mutex mutex_;         // guards the rest
    std::vector<std::shared_ptr<listener>> listeners_;
    bool unreadable_ = false;
};

} // namespace sluice::rdma
