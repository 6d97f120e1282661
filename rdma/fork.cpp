#include "rdma/fork.hpp"

#include <sluice/contract.hpp>

#include <string>
#include <unistd.h>

namespace sluice::rdma {

namespace {

constinit using_process the_process;

} // namespace

result<void> using_process::claim(pid_t self) noexcept {
    SLUICE_EXPECTS(self > 0, "rdma: a process without a number");
    pid_t first = 0;
    if (first_.compare_exchange_strong(first, self, std::memory_order_relaxed) || first == self) return {};
    return error(errc::unsupported,
                 "rdma: process " + std::to_string(first) +
                     " used RDMA before it forked this one, and a child can't use its parent's devices "
                     "[ibv_fork_init(3)]; fork before the first use of RDMA, or exec the program anew");
}

result<void> claim_rdma() { return the_process.claim(getpid()); }

void forget_claim() noexcept { the_process.forget(); }

} // namespace sluice::rdma
