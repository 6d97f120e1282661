// Zero-copy sends beside plain ones, both on a bare ring: whether the library should use them on this machine's sockets.
#include "benchmarks/echo_client.hpp"
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/ring_stream.hpp"

#include <array>
#include <fmt/format.h>

namespace sluice::bench {

namespace {

void run_size(const settings& s, report& out, std::size_t size_bytes) {
    const unsigned depth = s.depth != 0 ? s.depth : 16;
    const std::uint64_t operations =
        s.iterations_or(std::max<std::uint64_t>((std::uint64_t{256} << 20) / size_bytes, 16));
    const tcp_pairs with(1);
    const tcp_pairs without(1);
    raw::ring_stream zero_copy(with.servers()[0], with.clients()[0], size_bytes, depth, raw::sending::zero_copy);
    raw::ring_stream copies(without.servers()[0], without.clients()[0], size_bytes, depth, raw::sending::copies);
    const auto measure = [&](raw::ring_stream& stream) {
        const auto before = thread_cpu_time();
        stream.run(operations);
        return static_cast<double>((thread_cpu_time() - before).count()) / static_cast<double>(operations);
    };
    const auto seen = interleave(s.repeat, {if_wanted(s.wants_ours(), [&] { return measure(zero_copy); }),
                                            if_wanted(s.wants_baseline(), [&] { return measure(copies); })});
    const std::string name = fmt::format("zero_copy.{}KiB_sender_cpu", size_bytes >> 10);
    out.add(compare(name, "ns/op", seen[0], "plain sends", seen[1]));
    if (!s.json && s.wants_ours()) fmt::print("  of the zero-copy sends the kernel copied {}\n", zero_copy.copied());
}

} // namespace

void run_zero_copy(const settings& s, report& out) {
    if (s.size_bytes != 0) {
        run_size(s, out, s.size_bytes);
        return;
    }
    for (const std::size_t size : {std::size_t{16} << 10, std::size_t{64} << 10, std::size_t{1} << 20}) run_size(s, out, size);
}

} // namespace sluice::bench
