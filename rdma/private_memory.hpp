#pragma once

#include <sluice/result.hpp>

#include "rdma/device.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice::rdma {

/// Memory of rdma/ itself that a device reads and writes: frame headers, receive slots, staging. Page-aligned, registered once,
/// and not inherited by fork: a child must not make the parent copy pages that the device knows
/// [madvise(2) MADV_DONTFORK].
///
/// Lifetime: the device must be done with it before it goes. Thread rule: distinct objects safe.
class private_memory {
public:
    private_memory() noexcept = default;
    private_memory(private_memory&& other) noexcept
        : on_(other.on_), mr_(std::exchange(other.mr_, nullptr)), data_(std::exchange(other.data_, nullptr)),
          size_bytes_(std::exchange(other.size_bytes_, 0)) {}
    private_memory& operator=(private_memory&& other) noexcept {
        if (this != &other) {
            reset();
            on_ = other.on_;
            mr_ = std::exchange(other.mr_, nullptr);
            data_ = std::exchange(other.data_, nullptr);
            size_bytes_ = std::exchange(other.size_bytes_, 0);
        }
        return *this;
    }
    ~private_memory() { reset(); }

    /// At least `bytes`, rounded up to pages, zeroed. Errors: out_of_resources (no memory, or the memlock limit forbids
    /// registering it).
    /// `peers_read`: see device::register_private.
    static result<private_memory> create(device& on, std::size_t bytes, bool peers_read = false);

    std::byte* data() const noexcept { return data_; }
    std::size_t size_bytes() const noexcept { return size_bytes_; }
    std::uint32_t local_key() const noexcept { return mr_->lkey; }
    std::uint32_t remote_key() const noexcept { return mr_->rkey; }
    void reset() noexcept;

private:
    device* on_ = nullptr;
    ibv_mr* mr_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

} // namespace sluice::rdma
