#pragma once

#include <sluice/result.hpp>

#include "rdma/frame.hpp"
#include "rdma/private_memory.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::rdma {

/// A few registered buffers that payload goes through which lies in memory that the device does not know, such as a value
/// in a coroutine frame, and which is too long to be sent inline. Made when first needed.
///
/// Thread rule: executor-bound.
class staging {
public:
    explicit staging(device& on) noexcept : on_(on) {}
    staging(const staging&) = delete;
    staging& operator=(const staging&) = delete;

    /// Errors: why it could not be registered.
    result<void> prepare();
    bool empty() const noexcept { return free_ == 0; }
    /// A copy of at most slot_payload_bytes; one must be free.
    const std::byte* copy(std::span<const std::byte> bytes) noexcept;
    /// Nothing if it isn't one of these.
    void give_back(const std::byte* data) noexcept;
    std::uint32_t local_key() const noexcept { return memory_.local_key(); }

private:
    static constexpr std::size_t count = 8;
    device& on_;
    private_memory memory_;
    std::uint32_t free_ = 0; // a bit each
};

} // namespace sluice::rdma
