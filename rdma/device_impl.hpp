#pragma once

#include "rdma/device.hpp"
#include "rdma/device_events.hpp"
#include "rdma/held_devices.hpp"
#include "rdma/quirks.hpp"
#include "runtime/registration.hpp"

#include <atomic>
#include <mutex>
#include <optional>

namespace sluice::rdma {

/// A registrar: it meets all memory of the library, and keeps with each what it knows of it.
struct device::impl final : detail::registrar {
    struct keys;

    explicit impl(ibv_context* on);
    ~impl();
    /// Errors: what verbs report, with the call.
    result<void> open();

    // rdma/memory.cpp
    std::unique_ptr<detail::registrar_record> attach(const detail::registration& memory) noexcept override;
    void detach(detail::registrar_record& what) noexcept override;
    result<ibv_mr*> register_memory(const void* memory, std::size_t bytes, int access, bool may_relax);
    void deregister(ibv_mr* mr) noexcept;

    // constant after open
    std::optional<held_devices> held; // so that the context stays what it is as long as this lives
    ibv_context* context;
    std::string name;
    ibv_pd* pd = nullptr;
    ibv_device_attr limits{};
    rdma::quirks quirks;
    std::vector<std::uint32_t> max_message_bytes; // by port, the first is 1
    const error not_announced;
    bool registers = false; // is a registrar

    // any thread
    std::atomic<bool> alive{true};
    std::atomic<bool> relaxed_ordering{false}; // until the device refuses it
    device_events events;
    std::mutex mutex;
    std::optional<error>
        refused; // why the first memory was refused that found a limit of the process or of the machine
};

} // namespace sluice::rdma
