#pragma once

#include <sluice/contract.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::net {

/// Records with stable addresses and numbers, made in blocks when they are first needed and never given back before
/// the table goes: an idle connection has none, a busy one allocates nothing. Not thread-safe.
template <class T>
class slot_table {
public:
    explicit slot_table(std::uint32_t capacity) noexcept : capacity_(capacity) {}

    std::uint32_t capacity() const noexcept { return capacity_; }

    /// The record of this number, made if it is new. For whoever is told the number by the peer.
    T& at(std::uint32_t slot) {
        SLUICE_EXPECTS(slot < capacity_, "tcp: an operation's number beyond the table");
        const std::size_t index = slot / block_size;
        if (index >= blocks_.size()) blocks_.resize(index + 1);
        if (blocks_[index] == nullptr) blocks_[index] = std::make_unique<block>();
        return (*blocks_[index])[slot % block_size];
    }
    /// The record, or null if that was never made.
    T* find(std::uint32_t slot) noexcept {
        const std::size_t index = slot / block_size;
        if (index >= blocks_.size() || blocks_[index] == nullptr) return nullptr;
        return &(*blocks_[index])[slot % block_size];
    }
    template <class Visit>
    void for_each(Visit visit) {
        for (auto& b : blocks_)
            if (b != nullptr)
                for (T& record : *b) visit(record);
    }

private:
    static constexpr std::uint32_t block_size = 8;
    using block = std::array<T, block_size>;

    std::uint32_t capacity_;
    std::vector<std::unique_ptr<block>> blocks_;
};

} // namespace sluice::net
