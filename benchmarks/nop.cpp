// NOPs through the ring: what the runtime adds to io_uring itself.
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/nop.hpp"

#include <sluice/operation.hpp>
#include <sluice/scope.hpp>

#include <fmt/format.h>

namespace sluice::bench {

namespace {

task<void> one_after_the_other(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations; ++i)
        if (auto done = co_await nop(); !done) fail("nop: " + done.error().message());
}

task<void> side_by_side(unsigned batch, std::uint64_t operations) {
    if (batch == 1) { // awaited by the caller: one operation at a time needs no scope
        co_await one_after_the_other(operations);
        co_return;
    }
    scope all;
    for (unsigned i = 0; i < batch; ++i) all.spawn(one_after_the_other(operations / batch));
    const auto done = co_await all.join();
    if (!done) fail("nop: " + done.error().message());
}

void run_batch(const settings& s, report& out, unsigned batch) {
    const std::uint64_t operations = s.iterations_or(batch == 1 ? 50'000 : 200'000) / batch * batch;
    const auto home = make_executor();
    raw::ring ring;
    row r = measure_cpu(s, {.name = fmt::format("nop.batch_{}", batch),
                            .operations = operations,
                            .ours = [&] { sync_wait(*home, side_by_side(batch, operations)); },
                            .baseline_name = "liburing submit_and_wait",
                            .baseline = [&] { raw::nops(ring, batch, operations); }});
    if (batch == 1) r.target = 1.05;
    if (batch == 32) r.target = 1.15;
    out.add(r);
}

} // namespace

void run_nop(const settings& s, report& out) {
    if (s.depth != 0) {
        run_batch(s, out, s.depth);
        return;
    }
    for (const unsigned batch : {1U, 8U, 32U}) run_batch(s, out, batch);
}

} // namespace sluice::bench
