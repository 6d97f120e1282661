#pragma once

#include <sluice/result.hpp>

#include "rdma/frame.hpp"
#include "rdma/verbs.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice::rdma {

class device;

/// A few registered buffers that payload goes through which lies in memory that the device does not know, such as a value
/// in a coroutine frame, and which is too long to be sent inline. Made when first needed.
///
/// Thread rule: executor-bound.
class staging {
public:
    explicit staging(device& on) noexcept : on_(on) {}
    ~staging();
    staging(const staging&) = delete;
    staging& operator=(const staging&) = delete;

    /// Errors: why it could not be registered.
    result<void> prepare();
    bool empty() const noexcept { return free_ == 0; }
    /// A copy of at most slot_payload_bytes; one must be free.
    const std::byte* copy(std::span<const std::byte> bytes) noexcept;
    /// Nothing if it isn't one of these.
    void give_back(const std::byte* data) noexcept;
    std::uint32_t local_key() const noexcept { return mr_->lkey; }

private:
    static constexpr std::size_t count = 8;
    struct freed {
        void operator()(std::byte* p) const noexcept;
    };
    device& on_;
    std::unique_ptr<std::byte, freed> memory_;
    ibv_mr* mr_ = nullptr;
    std::uint32_t free_ = 0; // a bit each
};

} // namespace sluice::rdma
