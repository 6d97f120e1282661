#pragma once

#include <sluice/region.hpp>
#include <sluice/result.hpp>

#include "runtime/engine.hpp"
#include "runtime/page_allocator.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::detail {

/// Which memory one ring knows, and in which slots: for operations that would rather use a fixed opcode than have the
/// kernel look up and pin pages each time. Executor thread only.
class buffer_table {
public:
    static constexpr std::size_t slot_bytes = std::size_t{1} << 30; // the kernel's limit [io_uring_register_buffers(3)]

    /// The slot that holds all of [data, data + size_bytes), if one does: then `request::buffer_index` of a fixed opcode.
    /// Linear in the number of registrations, of which there are few.
    std::optional<std::uint16_t> find(const void* data, std::size_t size_bytes) const noexcept {
        const auto address = reinterpret_cast<std::uintptr_t>(data);
        for (const entry& each : entries_) {
            const std::uintptr_t offset = address - each.base; // wraps to something large for an address below
            if (offset >= each.size_bytes) continue;
            if (size_bytes > each.size_bytes - offset || size_bytes > slot_bytes - offset % slot_bytes) return std::nullopt;
            return static_cast<std::uint16_t>(each.first_slot + offset / slot_bytes);
        }
        return std::nullopt;
    }

    /// Tells the ring of the memory. Where the memlock limit forbids it the log says so, once, and nothing is added.
    /// Errors: anything else that the kernel refuses it for; no slots left.
    result<void> add(engine& ring, const registration& memory);
    /// Nothing when it isn't there.
    void remove(engine& ring, const registration& memory) noexcept;

private:
    struct entry {
        std::uintptr_t base;
        std::size_t size_bytes;
        std::uint32_t first_slot;
    };
    static std::uint32_t slots_of(std::size_t size_bytes) noexcept {
        return static_cast<std::uint32_t>((size_bytes + slot_bytes - 1) / slot_bytes);
    }

    std::vector<entry> entries_;
    page_allocator free_slots_{engine::buffer_slots}; // pages of another kind: runs of slots
};

} // namespace sluice::detail
