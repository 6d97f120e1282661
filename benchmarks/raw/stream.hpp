#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace sluice::bench::raw {

struct free_memory {
    void operator()(std::byte* p) const noexcept { std::free(p); }
};
using memory = std::unique_ptr<std::byte, free_memory>;
/// Touched, and with huge pages where they can be had.
memory huge_pages(std::size_t size_bytes);

/// A thread send()s on `from` what this thread recv()s from `to`, `size_bytes` by `size_bytes`: no protocol, nobody asks
/// for anything. Both go round in `blocks` blocks of memory, as the operations in flight of a connection do: a single
/// block would stay in the processor's cache. The memory has huge pages where they can be had, as a pool's has.
class stream {
public:
    stream(int from, int to, std::size_t size_bytes, unsigned blocks);
    void run(std::uint64_t operations);

private:
    int from_;
    int to_;
    std::size_t size_bytes_;
    std::size_t memory_bytes_;
    memory source_;
    memory target_;
};

} // namespace sluice::bench::raw
