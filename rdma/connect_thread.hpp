#pragma once

#include <sluice/executor.hpp>
#include <sluice/task.hpp>

#include "rdma/verbs.hpp"

namespace sluice::rdma {

/// rdma_connect on a thread of its own, for a device that waits for the peer's host in there
/// (quirks::blocks_in_connect): helper threads are too few for what may take minutes. Gives 0, or the errno it failed
/// with.
///
/// Cancellation: a stop cancels the thread in the system call that waits [pthread_cancel(3)], which gives ECANCELED;
/// librdmacm holds no lock there and has only noted in the id the depths that are asked for [cma.c: rdma_connect].
/// Lifetime: the id stays until this has ended, which it does at once after a stop. Thread rule: executor-bound.
task<int> connect_on_thread(executor& home, rdma_cm_id* id, rdma_conn_param with);

} // namespace sluice::rdma
