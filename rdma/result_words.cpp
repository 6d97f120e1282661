#include "rdma/result_words.hpp"

#include <sluice/contract.hpp>

#include <utility>

namespace sluice::rdma {

result<void> result_words::prepare() {
    if (page_.data() != nullptr) return {};
    auto made = private_memory::create(on_, count * sizeof(std::uint64_t));
    if (!made) return std::move(made).error();
    page_ = std::move(*made);
    free_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) free_.push_back(reinterpret_cast<std::uint64_t*>(page_.data()) + i);
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
