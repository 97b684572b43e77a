#pragma once
// The ranks of a node meet and get one memory file: local rank 0 makes a memfd and hands it to the others over
// an abstract unix socket that is named after the job, so no name is ever left in /dev/shm or /tmp.

#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "runtime/ended.h"

namespace tarantella::runtime {

struct MeetingOptions {
  /// How often a rank says for whom it waits.
  Duration warn_every = 60s;
  /// A rank that had come and is gone is given so long before the meeting fails: its launcher may have a better word.
  Duration grace = 3s;
  /// What is known of ranks that have ended.
  Ended ended{};
};

/// Blocks until all `size` ranks of `job` on this node have met, then returns the memory file that they share
/// (empty; the caller owns it). Every rank calls it once, with the same `job` and `size` and a `rank` of its own.
/// Ranks may be processes of one user or threads of one process.
/// Errors: kTimeout at the deadline, naming the ranks that did not come; kPeerLost at once where one has ended well
/// before all had met, after options.grace where one that had come is gone (if it failed, its launcher says so); kMismatch for another version or size, or a rank that
/// came twice; kInvalidArgument; kSystem. Every rank that has come gets the error.
Result<Fd> rendezvous(const std::string& job, int rank, int size, Deadline deadline,
                      const MeetingOptions& options = {});

}  // namespace tarantella::runtime
