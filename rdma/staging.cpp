#include "rdma/staging.hpp"

#include <sluice/contract.hpp>

#include "rdma/device.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sluice::rdma {

void staging::freed::operator()(std::byte* p) const noexcept { std::free(p); }

staging::~staging() {
    if (mr_ != nullptr) on_.deregister_private(mr_);
}

result<void> staging::prepare() {
    if (mr_ != nullptr) return {};
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, count * slot_payload_bytes)));
    if (memory_ == nullptr) return error::from_errno(ENOMEM, "buffers for messages from unregistered memory");
    auto made = on_.register_private(memory_.get(), count * slot_payload_bytes);
    if (!made) return std::move(made).error();
    mr_ = *made;
    free_ = (1U << count) - 1;
    return {};
}

const std::byte* staging::copy(std::span<const std::byte> bytes) noexcept {
    SLUICE_EXPECTS(free_ != 0 && bytes.size() <= slot_payload_bytes, "rdma: no staging buffer is free");
    const auto index = static_cast<std::size_t>(std::countr_zero(free_));
    free_ &= free_ - 1;
    std::byte* at = memory_.get() + index * slot_payload_bytes;
    std::memcpy(at, bytes.data(), bytes.size());
    return at;
}

void staging::give_back(const std::byte* data) noexcept {
    if (memory_ == nullptr || data < memory_.get() || data >= memory_.get() + count * slot_payload_bytes) return;
    const auto index = static_cast<std::size_t>(data - memory_.get()) / slot_payload_bytes;
    SLUICE_EXPECTS((free_ & 1U << index) == 0, "rdma: a staging buffer was given back twice");
    free_ |= 1U << index;
}

} // namespace sluice::rdma
