#pragma once

#include <sluice/result.hpp>

#include <atomic>
#include <sys/types.h>

namespace sluice::rdma {

/// The process that uses RDMA: the first that did. What a child of fork() has of its parent's devices is of no use to
/// it: their registers are not mapped in the child (so that it would crash), and the descriptors are the parent's too.
///
/// Thread rule: thread-safe.
class using_process {
public:
    /// `self` uses RDMA from now on. Errors: errc::unsupported when another process, the parent of this one, did
    /// before.
    result<void> claim(pid_t self) noexcept;
    /// Nobody has used it: there is another RDMA now.
    void forget() noexcept { first_.store(0, std::memory_order_relaxed); }

private:
    std::atomic<pid_t> first_{0};
};

/// Before anything is asked of libibverbs or librdmacm, which keep what they have opened until the process ends.
result<void> claim_rdma();
/// For use_verbs(): with another table nothing has been opened yet.
void forget_claim() noexcept;

} // namespace sluice::rdma
