#include "rdma/staging.hpp"

#include <sluice/contract.hpp>

#include <cstring>
#include <utility>

namespace sluice::rdma {

result<void> staging::prepare() {
    if (memory_.data() != nullptr) return {};
    auto made = private_memory::create(on_, count * slot_payload_bytes);
    if (!made) return std::move(made).error();
    memory_ = std::move(*made);
    free_ = (1U << count) - 1;
    return {};
}

const std::byte* staging::copy(std::span<const std::byte> bytes) noexcept {
    SLUICE_EXPECTS(free_ != 0 && bytes.size() <= slot_payload_bytes, "rdma: no staging buffer is free");
    const auto index = static_cast<std::size_t>(std::countr_zero(free_));
    free_ &= free_ - 1;
    std::byte* at = memory_.data() + index * slot_payload_bytes;
    std::memcpy(at, bytes.data(), bytes.size());
    return at;
}

void staging::give_back(const std::byte* data) noexcept {
    const std::byte* const first = memory_.data();
    if (first == nullptr || data < first || data >= first + count * slot_payload_bytes) return;
    const auto index = static_cast<std::size_t>(data - first) / slot_payload_bytes;
    SLUICE_EXPECTS((free_ & 1U << index) == 0, "rdma: a staging buffer was given back twice");
    free_ |= 1U << index;
}

} // namespace sluice::rdma
