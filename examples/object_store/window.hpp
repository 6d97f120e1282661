#pragma once

#include "examples/object_store/protocol.hpp"

#include <sluice/event.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/scope.hpp>
#include <sluice/task.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>

namespace store {

/// How an object is cut into chunks, and chunks go round in the slots of a window: chunk i uses slot i % slots, at
/// both ends.
struct layout {
    std::uint64_t size_bytes = 0;
    std::uint32_t chunk_bytes = chunk_unit_bytes;
    std::uint32_t slots = 1;

    /// The smallest window of at most `slots` times `chunk_bytes` that keeps an object of `size_bytes` moving.
    static layout fit(std::uint64_t size_bytes, std::uint32_t chunk_bytes, std::uint32_t slots) noexcept {
        layout l{.size_bytes = size_bytes};
        const std::uint64_t whole = std::max<std::uint64_t>(round_up(size_bytes, chunk_unit_bytes), chunk_unit_bytes);
        l.chunk_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_bytes, whole));
        l.slots = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(chunk_count(size_bytes, l.chunk_bytes), 1, std::max(slots, 1U)));
        return l;
    }

    std::uint64_t chunks() const noexcept { return chunk_count(size_bytes, chunk_bytes); }
    std::size_t window_bytes() const noexcept { return std::size_t{chunk_bytes} * slots; }
    std::uint64_t offset(std::uint64_t chunk) const noexcept { return chunk * chunk_bytes; }
    std::uint32_t bytes(std::uint64_t chunk) const noexcept { return chunk_size(size_bytes, chunk_bytes, chunk); }
    /// The same, rounded up to what direct I/O takes; slots have room for it.
    std::uint32_t padded(std::uint64_t chunk) const noexcept {
        return static_cast<std::uint32_t>(round_up(bytes(chunk), chunk_unit_bytes));
    }
    std::size_t slot_offset(std::uint64_t chunk) const noexcept {
        return static_cast<std::size_t>(chunk % slots) * chunk_bytes;
    }
};

/// One gate per slot, opened for one chunk at a time.
class slot_gates {
public:
    slot_gates(std::uint32_t slots, bool open) {
        for (std::uint32_t i = 0; i < slots; ++i) gates_.emplace_back(open);
    }
    void open(std::uint64_t chunk) noexcept { of(chunk).set(); }
    /// `co_await gates.wait(i)`, then `gates.shut(i)`.
    sluice::event::wait_operation wait(std::uint64_t chunk) noexcept { return of(chunk).wait(); }
    void shut(std::uint64_t chunk) noexcept { of(chunk).reset(); }

private:
    sluice::event& of(std::uint64_t chunk) noexcept { return gates_[static_cast<std::size_t>(chunk % gates_.size())]; }
    std::deque<sluice::event> gates_; // events don't move
};

/// For the tasks of one pipeline: the first that fails stops the others. `pipeline.join()` then gives its error.
sluice::task<sluice::result<void>> stop_others_on_error(sluice::scope& pipeline,
                                                        sluice::task<sluice::result<void>> work);

} // namespace store
