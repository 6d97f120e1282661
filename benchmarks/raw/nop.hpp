#pragma once

#include "benchmarks/raw/ring.hpp"

#include <cstdint>

namespace sluice::bench::raw {

/// `operations` NOPs: `batch` at a time are prepared, and submitted and reaped by one io_uring_submit_and_wait.
void nops(ring& r, unsigned batch, std::uint64_t operations);

} // namespace sluice::bench::raw
