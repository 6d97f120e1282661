// Writes on a device that takes them and does nothing: what stands in front of a device, beside bare verbs.
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/verbs.hpp"
#include "benchmarks/raw/willing_device.hpp"
#include "benchmarks/transfer_ends.hpp"

#include "rdma/connection_manager.hpp"
#include "rdma/device.hpp"
#include "rdma/frame.hpp"
#include "rdma/rail.hpp"
#include "rdma/rdma_connection.hpp"

#include <sluice/operation.hpp>
#include <sluice/sync_wait.hpp>

#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <utility>
#include <vector>

namespace sluice::bench {

namespace {

constexpr std::uint32_t slots = 16;
constexpr std::uint64_t owner = 7;            // the peer's number in what it shares
constexpr std::uint64_t shared_at = 1U << 20; // nobody looks there

/// The share that the peer has told of with this frame.
remote_region shared_by_peer(raw::willing_device& on, std::size_t bytes) {
    const rdma::frame f{.type = rdma::frame_type::shared,
                        .access_bits = static_cast<std::uint8_t>(access::remote_read | access::remote_write),
                        .immediate = 1,
                        .key = 2,
                        .size = bytes,
                        .address = shared_at};
    on.deliver(f.encode());
    return {.address = shared_at,
            .size_bytes = bytes,
            .key = f.key,
            .owner = owner,
            .generation = f.immediate,
            .granted = access::remote_read | access::remote_write,
            .provider = remote_region::provider_kind::rdma};
}

/// A connection whose set-up is over, without one: there is nobody to set it up with. All on this thread, without helper
/// threads: valgrind, which counts instructions, stands still when one thread of several sleeps in a ring. For the same
/// reason it is not closed in the end, which would take them, but only destroyed.
connection established(raw::willing_device& device, executor& home) {
    auto opened = rdma::device::of(device.context());
    rdma::device* on = must(std::move(opened), "device");
    std::shared_ptr<rdma::rail> rail = rdma::rail::install(must(rdma::rail::make(home, *on), "rail"));
    auto manager = must(rdma::connection_manager::of(home), "connection manager");
    rdma::rdma_lane_parts parts;
    parts.id = must(rdma::cm_id::create(*manager), "cm id");
    parts.qp = must(rdma::queue_pair::create(rail, parts.id->get()), "queue pair");
    const auto here = must(rail->add_slots(slots + rdma::slots_kept_back, slots + rdma::slots_kept_back), "slots");
    rdma::rdma_terms terms;
    terms.operations_in_flight = 1024;
    terms.receive_credits = 64;
    terms.message_bytes_max = 1 << 20;
    terms.slots_of_peer = slots;
    terms.slots_here = here;
    terms.connecting_end = true;
    terms.peer = owner;
    std::vector<rdma::rdma_lane_parts> lanes;
    lanes.push_back(std::move(parts));
    return connection(std::make_unique<rdma::rdma_connection>(home, connection_options{}, std::move(terms),
                                                                 std::move(rail), std::move(lanes)));
}

task<run_figures> measured(one_sided_blocks on, unsigned depth, std::uint64_t operations) {
    const std::uint64_t before = on.over.stats().write.bytes(path::rdma);
    const stopwatch watch;
    co_await one_sided(on, direction::write, depth, operations);
    const run_figures seen = watch.read();
    if (on.over.stats().write.bytes(path::rdma) - before != operations * on.size_bytes)
        fail("rdma-post: the byte counters of path rdma don't tell what was asked for");
    co_return seen;
}

/// Through the ring and back, and so past the completion queues: what the peer has said is heard.
task<void> hear_the_peer() {
    for (int i = 0; i < 2; ++i) static_cast<void>(co_await nop());
}

void run_one(const settings& s, report& out, std::size_t size, unsigned depth) {
    raw::willing_device device;
    const work load{.size_bytes = size,
                    .depth = depth,
                    .operations = std::max<std::uint64_t>(s.iterations_or(200'000) / depth, 1) * depth};
    const auto home = make_executor();
    std::vector<std::byte> bytes(size * depth);
    const memory_region memory = must(memory_region::create(bytes), "memory");
    connection ours = established(device, *home);
    const remote_region there = shared_by_peer(device, size * depth);
    sync_wait(*home, hear_the_peer());
    const one_sided_blocks blocks{ours, memory, there, size};
    raw::verbs_end bare;
    bare.borrow(device.bare_qp(), device.bare_cq(), size * depth);

    std::vector<double> ours_cpu;
    std::vector<double> bare_cpu;
    std::uint64_t allocated = 0;
    const auto per_operation = [&](std::chrono::nanoseconds t) {
        return static_cast<double>(t.count()) / static_cast<double>(load.operations);
    };
    const auto figures = interleave(
        s.repeat, {if_wanted(s.wants_ours(),
                             [&] {
                                 const run_figures seen =
                                     sync_wait(*home, measured(blocks, depth, load.operations));
                                 allocated = seen.allocations;
                                 return per_operation(seen.cpu);
                             }),
                   if_wanted(s.wants_baseline(), [&] {
                       const stopwatch watch;
                       raw::one_sided(bare, bare, IBV_WR_RDMA_WRITE,
                                      {.size_bytes = size, .depth = depth, .how = raw::wait::poll}, load.operations);
                       return per_operation(watch.read().cpu);
                   })});
    row r = compare(fmt::format("rdma-post.{}_depth{}", text_of_size(size), depth), "ns/op", figures[0], "bare verbs", figures[1]);
    if (s.wants_ours())
        r.allocations_per_operation = static_cast<double>(allocated) / static_cast<double>(load.operations);
    out.add(r);
}

} // namespace

void run_rdma_post(const settings& s, report& out) {
    std::vector<unsigned> depths{1, 16};
    if (s.depth != 0) depths = {s.depth};
    for (const unsigned depth : depths) run_one(s, out, s.size_bytes != 0 ? s.size_bytes : 64, depth);
}

} // namespace sluice::bench
