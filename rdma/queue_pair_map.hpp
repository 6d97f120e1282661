#pragma once

#include <sluice/contract.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::rdma {

struct queue_pair_state;

/// Queue pairs by number (24 bits, but for software providers). Open addressing: a look-up is a multiplication and,
/// nearly always, one comparison; nothing is allocated but when it grows.
class queue_pair_map {
public:
    queue_pair_map() : places_(16) {}

    std::size_t size() const noexcept { return size_; }

    queue_pair_state* find(std::uint32_t number) const noexcept {
        for (std::size_t at = home_of(number);; at = next(at)) {
            const place& p = places_[at];
            if (p.of == nullptr) return nullptr;
            if (p.number == number) return p.of;
        }
    }
    void insert(std::uint32_t number, queue_pair_state& of) {
        SLUICE_EXPECTS(find(number) == nullptr, "rail: two queue pairs of one number");
        if ((size_ + 1) * 2 > places_.size()) grow();
        put(number, of);
        ++size_;
    }
    /// Moves what comes after it closer to home, so that nothing is marked as deleted.
    void erase(std::uint32_t number) noexcept {
        std::size_t gap = home_of(number);
        while (places_[gap].number != number || places_[gap].of == nullptr) {
            SLUICE_EXPECTS(places_[gap].of != nullptr, "rail: a queue pair that it doesn't have");
            gap = next(gap);
        }
        for (std::size_t at = next(gap); places_[at].of != nullptr; at = next(at)) {
            // One may fill the gap if its home is not between the gap and where it is.
            const std::size_t from_home = (at - home_of(places_[at].number)) & (places_.size() - 1);
            const std::size_t from_gap = (at - gap) & (places_.size() - 1);
            if (from_home < from_gap) continue;
            places_[gap] = places_[at];
            gap = at;
        }
        places_[gap] = {};
        --size_;
    }
    template <class Visit>
    void for_each(Visit visit) {
        for (const place& p : places_)
            if (p.of != nullptr) visit(*p.of);
    }

private:
    struct place {
        queue_pair_state* of = nullptr;
        std::uint32_t number = 0;
    };

    std::size_t home_of(std::uint32_t number) const noexcept {
        // Fibonacci hashing: numbers come in sequences, often with a stride.
        return (std::uint64_t{number} * 0x9E3779B97F4A7C15U >> 32) & (places_.size() - 1);
    }
    std::size_t next(std::size_t at) const noexcept { return (at + 1) & (places_.size() - 1); }
    void put(std::uint32_t number, queue_pair_state& of) noexcept {
        std::size_t at = home_of(number);
        while (places_[at].of != nullptr) at = next(at);
        places_[at] = {&of, number};
    }
    void grow() {
        std::vector<place> before(places_.size() * 2);
        before.swap(places_);
        for (const place& p : before)
            if (p.of != nullptr) put(p.number, *p.of);
    }

    std::vector<place> places_; // a power of two, at most half of them taken
    std::size_t size_ = 0;
};

} // namespace sluice::rdma
