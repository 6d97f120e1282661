#pragma once

#include <sluice/result.hpp>

#include "rdma/private_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::rdma {

/// Registered words that atomics leave the old value in: the device writes it by DMA, so it needs memory of its own.
/// Made when first needed: one page.
///
/// Thread rule: executor-bound.
class result_words {
public:
    explicit result_words(device& on) noexcept : on_(on) {}
    result_words(const result_words&) = delete;
    result_words& operator=(const result_words&) = delete;

    /// Errors: why the page could not be registered.
    result<void> prepare();
    bool empty() const noexcept { return free_.empty(); }
    std::uint64_t* take() noexcept;
    void give_back(std::uint64_t* word) noexcept;
    std::uint32_t local_key() const noexcept { return page_.local_key(); }

private:
    static constexpr std::size_t count = 512;
    device& on_;
    private_memory page_;
    std::vector<std::uint64_t*> free_;
};

} // namespace sluice::rdma
