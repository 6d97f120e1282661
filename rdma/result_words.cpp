#include "rdma/result_words.hpp"

#include <sluice/contract.hpp>

#include "rdma/device.hpp"

#include <cerrno>
#include <cstdlib>

namespace sluice::rdma {

void result_words::freed::operator()(std::byte* p) const noexcept { std::free(p); }

result_words::~result_words() {
    if (mr_ != nullptr) on_.deregister_private(mr_);
}

result<void> result_words::prepare() {
    if (mr_ != nullptr) return {};
    page_.reset(static_cast<std::byte*>(std::aligned_alloc(page_bytes, page_bytes)));
    if (page_ == nullptr) return error::from_errno(ENOMEM, "a page for the results of atomics");
    auto made = on_.register_private(page_.get(), page_bytes);
    if (!made) return std::move(made).error();
    mr_ = *made;
    constexpr std::size_t count = page_bytes / sizeof(std::uint64_t);
    free_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) free_.push_back(reinterpret_cast<std::uint64_t*>(page_.get()) + i);
    return {};
}

std::uint64_t* result_words::take() noexcept {
    SLUICE_EXPECTS(!free_.empty(), "rdma: no word is free for the result of an atomic");
    std::uint64_t* word = free_.back();
    free_.pop_back();
    return word;
}

void result_words::give_back(std::uint64_t* word) noexcept {
    SLUICE_EXPECTS(free_.size() < free_.capacity(), "rdma: a word was given back twice");
    free_.push_back(word);
}

} // namespace sluice::rdma
