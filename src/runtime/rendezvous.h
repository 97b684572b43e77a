#pragma once
// The rendezvous of the ranks of a node, which get one memory file: local rank 0 creates a memfd and sends it to the
// others over an abstract unix socket that is named after the job, so that no name is left in /dev/shm or /tmp.

#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "runtime/rank_status_file.h"

namespace tarantella::runtime {

struct RendezvousOptions {
  /// How often a rank logs for which ranks it waits.
  Duration warn_every = 60s;
  /// The time from the loss of a rank that had joined to the error: its launcher may know the cause.
  Duration failure_delay = 3s;
  /// Which ranks are known to have joined or ended.
  RankStatusFile rank_status{};
};

/// Blocks until all `size` ranks of `job` on this node have met, then returns the memory file that they share
/// (empty; the caller owns it). Every rank calls it once, with the same `job` and `size` and its own `rank`.
/// Ranks may be processes of one user or threads of one process.
/// Errors: kTimeout at the deadline, naming the ranks that did not join; kPeerLost at once if a rank has ended with
/// exit code 0 before all had met, and after options.failure_delay if a rank that had joined is gone (if it failed, its
/// launcher reports it); kMismatch for another version or size, or if two ranks have the same number; kInvalidArgument;
/// kSystem. Every rank that has joined gets the error.
Result<Fd> rendezvous(const std::string& job, int rank, int size, Deadline deadline,
                      const RendezvousOptions& options = {});

}  // namespace tarantella::runtime
