#pragma once

#include "benchmarks/raw/ring.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::bench::raw {

/// Random direct reads of a file on a bare ring, with its memory and its descriptor registered.
class file_reader {
public:
    /// `fd` is open with O_DIRECT, `memory` has room for `depth` blocks. Both outlive the reader.
    file_reader(int fd, std::span<std::byte> memory, std::size_t block_bytes, unsigned depth);

    /// Reads one block for each offset, keeping `depth` in flight.
    void run(std::span<const std::uint64_t> offsets);

private:
    void start(unsigned slot, std::uint64_t offset);

    ring ring_;
    std::span<std::byte> memory_;
    std::size_t block_bytes_;
    unsigned depth_;
};

} // namespace sluice::bench::raw
