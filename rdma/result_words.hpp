#pragma once

#include <sluice/result.hpp>

#include "rdma/verbs.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::rdma {

class device;

/// Registered words that atomics leave the old value in: the device writes it by DMA, so it needs memory of its own.
/// Made when first needed: one page.
///
/// Thread rule: executor-bound.
class result_words {
public:
    explicit result_words(device& on) noexcept : on_(on) {}
    ~result_words();
    result_words(const result_words&) = delete;
    result_words& operator=(const result_words&) = delete;

    /// Errors: why the page could not be registered.
    result<void> prepare();
    bool empty() const noexcept { return free_.empty(); }
    std::uint64_t* take() noexcept;
    void give_back(std::uint64_t* word) noexcept;
    std::uint32_t local_key() const noexcept { return mr_->lkey; }

private:
    static constexpr std::size_t page_bytes = 4096;
    struct freed {
        void operator()(std::byte* p) const noexcept;
    };
    device& on_;
    std::unique_ptr<std::byte, freed> page_;
    ibv_mr* mr_ = nullptr;
    std::vector<std::uint64_t*> free_;
};

} // namespace sluice::rdma
