#include "benchmarks/raw/nop.hpp"

#include "benchmarks/bench.hpp"

#include <array>
#include <cstring>
#include <fmt/format.h>

namespace sluice::bench::raw {

namespace {
struct slot {
    std::uint64_t done = 0;
};
} // namespace

void nops(ring& r, unsigned batch, std::uint64_t operations) {
    std::array<slot, 64> slots; // stands for the state that a program keeps per operation
    for (std::uint64_t done = 0; done < operations; done += batch) {
        for (unsigned i = 0; i < batch; ++i) {
            io_uring_sqe* sqe = r.entry();
            io_uring_prep_nop(sqe);
            io_uring_sqe_set_data(sqe, &slots[i]);
        }
        if (const int rc = io_uring_submit_and_wait(r.get(), batch); rc < 0)
            fail(fmt::format("io_uring_enter: {}", std::strerror(-rc)));
        unsigned head = 0;
        unsigned seen = 0;
        io_uring_cqe* cqe = nullptr;
        io_uring_for_each_cqe(r.get(), head, cqe) {
            if (cqe->res < 0) fail(fmt::format("nop: {}", std::strerror(-cqe->res)));
            ++static_cast<slot*>(io_uring_cqe_get_data(cqe))->done;
            ++seen;
        }
        io_uring_cq_advance(r.get(), seen);
    }
}

} // namespace sluice::bench::raw
