#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::bench::raw {

/// A thread send()s on `from` what this thread recv()s from `to`, `size_bytes` by `size_bytes`: no protocol, nobody asks
/// for anything. Both go round in `blocks` blocks of memory, as the operations in flight of a connection do: a single
/// block would stay in the processor's cache.
class stream {
public:
    stream(int from, int to, std::size_t size_bytes, unsigned blocks);
    void run(std::uint64_t operations);

private:
    int from_;
    int to_;
    std::size_t size_bytes_;
    std::vector<std::byte> source_;
    std::vector<std::byte> target_;
};

} // namespace sluice::bench::raw
