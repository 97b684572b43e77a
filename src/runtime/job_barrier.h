#pragma once
// A barrier of the ranks of a job on several hosts, before any of them starts what ends only when all have come: the
// rendezvous of their node, and MPI. Each tells its launcher, and the launchers tell all ranks.

#include "base/clock.h"
#include "base/status.h"
#include "runtime/rendezvous.h"

namespace tarantella::runtime {

/// Blocks until all `size` ranks of the job have called it. options.rank_status is that of the whole job; returns at
/// once without one, or without a launcher. One rank for all, the first that waits, warns of those that do not come.
/// Errors: kTimeout at the deadline, naming the ranks that did not come; kPeerLost at once if a rank has ended with
/// exit code 0. Of one that fails its launcher knows the cause, and ends the job.
Status job_barrier(int rank, int size, Deadline deadline, const RendezvousOptions& options);

}  // namespace tarantella::runtime
