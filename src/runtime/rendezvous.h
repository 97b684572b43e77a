#pragma once
// The ranks of a node meet and get one memory file: local rank 0 creates a memfd and sends it to the others over an
// abstract unix socket that is named after the job, so that no name is left in /dev/shm or /tmp.

#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "runtime/attendance.h"

namespace tarantella::runtime {

struct MeetingOptions {
  /// How often a rank logs for which ranks it waits.
  Duration warn_every = 60s;
  /// The time from the loss of a rank that had joined to the error: its launcher may know the cause.
  Duration grace = 3s;
  /// The ranks that are known to have ended.
  Attendance attendance{};
};

/// Blocks until all `size` ranks of `job` on this node have met, then returns the memory file that they share
/// (empty; the caller owns it). Every rank calls it once, with the same `job` and `size` and its own `rank`.
/// Ranks may be processes of one user or threads of one process.
/// Errors: kTimeout at the deadline, naming the ranks that did not join; kPeerLost at once if a rank has ended with
/// exit code 0 before all had met, and after options.grace if a rank that had joined is gone (if it failed, its
/// launcher reports it); kMismatch for another version or size, or if two ranks have the same number; kInvalidArgument;
/// kSystem. Every rank that has joined gets the error.
Result<Fd> rendezvous(const std::string& job, int rank, int size, Deadline deadline,
                      const MeetingOptions& options = {});

}  // namespace tarantella::runtime
