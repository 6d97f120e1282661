#include "benchmarks/raw/stream.hpp"

#include "benchmarks/bench.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <thread>

namespace sluice::bench::raw {

stream::stream(int from, int to, std::size_t size_bytes, unsigned blocks)
    : from_(from), to_(to), size_bytes_(size_bytes), source_(size_bytes * blocks, std::byte{1}),
      target_(size_bytes * blocks) {}

void stream::run(std::uint64_t operations) {
    std::thread sender([this, operations] {
        std::size_t at = 0;
        for (std::uint64_t left = operations * size_bytes_; left > 0;) {
            const std::size_t now = std::min<std::uint64_t>(size_bytes_ - at % size_bytes_, left);
            const ssize_t n = send(from_, source_.data() + at, now, MSG_NOSIGNAL);
            if (n < 0) fail(fmt::format("send: {}", std::strerror(errno)));
            at = (at + static_cast<std::size_t>(n)) % source_.size();
            left -= static_cast<std::size_t>(n);
        }
    });
    for (std::uint64_t i = 0; i < operations; ++i) {
        std::byte* block = target_.data() + i * size_bytes_ % target_.size();
        if (recv(to_, block, size_bytes_, MSG_WAITALL) != static_cast<ssize_t>(size_bytes_))
            fail(fmt::format("recv: {}", std::strerror(errno)));
    }
    sender.join();
}

} // namespace sluice::bench::raw
