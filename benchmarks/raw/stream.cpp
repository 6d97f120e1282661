#include "benchmarks/raw/stream.hpp"

#include "benchmarks/bench.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>

namespace sluice::bench::raw {

memory huge_pages(std::size_t size_bytes) {
    constexpr std::size_t page_bytes = std::size_t{2} << 20;
    const std::size_t whole = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
    memory made(static_cast<std::byte*>(std::aligned_alloc(page_bytes, whole)));
    if (!made) fail(fmt::format("no {} bytes of memory", whole));
    static_cast<void>(madvise(made.get(), whole, MADV_HUGEPAGE)); // small ones do as well
    std::memset(made.get(), 1, whole);
    return made;
}

stream::stream(int from, int to, std::size_t size_bytes, unsigned blocks)
    : from_(from), to_(to), size_bytes_(size_bytes), memory_bytes_(size_bytes * blocks),
      source_(huge_pages(memory_bytes_)), target_(huge_pages(memory_bytes_)) {}

void stream::run(std::uint64_t operations) {
    std::thread sender([this, operations] {
        std::size_t at = 0;
        for (std::uint64_t left = operations * size_bytes_; left > 0;) {
            const std::size_t now = std::min<std::uint64_t>(size_bytes_ - at % size_bytes_, left);
            const ssize_t n = send(from_, source_.get() + at, now, MSG_NOSIGNAL);
            if (n < 0) fail(fmt::format("send: {}", std::strerror(errno)));
            at = (at + static_cast<std::size_t>(n)) % memory_bytes_;
            left -= static_cast<std::size_t>(n);
        }
    });
    for (std::uint64_t i = 0; i < operations; ++i) {
        std::byte* block = target_.get() + i * size_bytes_ % memory_bytes_;
        if (recv(to_, block, size_bytes_, MSG_WAITALL) != static_cast<ssize_t>(size_bytes_))
            fail(fmt::format("recv: {}", std::strerror(errno)));
    }
    sender.join();
}

} // namespace sluice::bench::raw
