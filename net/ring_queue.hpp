#pragma once

#include <sluice/contract.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace sluice::net {

/// First in, first out, in one stretch of memory that grows to what is needed at once and is then used round and
/// round. Elements can be looked at by their position since the queue was made.
template <class T>
class ring_queue {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    bool empty() const noexcept { return head_ == tail_; }
    std::size_t size() const noexcept { return tail_ - head_; }
    /// Positions of the first element, and of the next that will be pushed.
    std::size_t head() const noexcept { return head_; }
    std::size_t tail() const noexcept { return tail_; }
    T& at(std::size_t position) noexcept {
        SLUICE_EXPECTS(position >= head_ && position < tail_, "ring queue: no such element");
        return elements_[position & (elements_.size() - 1)];
    }
    T& front() noexcept { return at(head_); }
    void push(const T& value) {
        if (size() == elements_.size()) grow();
        elements_[tail_++ & (elements_.size() - 1)] = value;
    }
    void pop() noexcept {
        SLUICE_EXPECTS(!empty(), "ring queue: popped when empty");
        ++head_;
    }

private:
    void grow() {
        std::vector<T> larger(std::max<std::size_t>(8, elements_.size() * 2));
        for (std::size_t p = head_; p < tail_; ++p) larger[p & (larger.size() - 1)] = at(p);
        elements_.swap(larger);
    }
    std::vector<T> elements_; // a power of two
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
};

/// The same for the bytes of messages that wait.
class byte_ring {
public:
    void push(std::span<const std::byte> bytes) {
        if (bytes.empty()) return;
        if (size_ + bytes.size() > capacity_) grow(size_ + bytes.size());
        const std::size_t at = (head_ + size_) & (capacity_ - 1);
        const std::size_t first = std::min(bytes.size(), capacity_ - at);
        std::memcpy(data_.get() + at, bytes.data(), first);
        if (first < bytes.size()) std::memcpy(data_.get(), bytes.data() + first, bytes.size() - first);
        size_ += bytes.size();
    }
    /// Takes the first bytes; with no memory to put them into, drops them.
    void pop(std::byte* into, std::size_t bytes) noexcept {
        SLUICE_EXPECTS(bytes <= size_, "byte ring: popped more than there is");
        if (bytes == 0) return;
        if (into != nullptr) {
            const std::size_t first = std::min(bytes, capacity_ - head_);
            std::memcpy(into, data_.get() + head_, first);
            if (first < bytes) std::memcpy(into + first, data_.get(), bytes - first);
        }
        head_ = (head_ + bytes) & (capacity_ - 1);
        size_ -= bytes;
        if (size_ == 0 && capacity_ > kept_bytes) {
            data_.reset();
            capacity_ = head_ = 0;
        }
    }

private:
    static constexpr std::size_t kept_bytes = 4096; // of a burst, by a connection that is idle again

    void grow(std::size_t wanted) {
        std::size_t capacity = std::max<std::size_t>(1024, capacity_);
        while (capacity < wanted) capacity *= 2;
        auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity);
        const std::size_t first = std::min(size_, capacity_ - head_);
        if (first > 0) std::memcpy(larger.get(), data_.get() + head_, first);
        if (first < size_) std::memcpy(larger.get() + first, data_.get(), size_ - first);
        data_ = std::move(larger);
        capacity_ = capacity;
        head_ = 0;
    }
    std::unique_ptr<std::byte[]> data_;
    std::size_t capacity_ = 0; // 0 or a power of two
    std::size_t head_ = 0;
    std::size_t size_ = 0;
};

} // namespace sluice::net
