#pragma once
// Shared memory between the processes of one node.

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/rendezvous.h"
#include "transport/memory.h"

namespace tarantella::transport {

/// A node of a job on several.
struct PartOfJob {
  std::vector<int> ranks;  ///< the number in the job of each rank of the node
  int size;                ///< the number of ranks in the job
};

/// Meets the other ranks of `job` on this node, `size` ranks, and shares memory with them. Blocks until all have come
/// or `deadline` has passed. Errors: those of runtime/rendezvous.h; kSystem. Not for use in a forked child. Other ranks
/// see that this process is alive by a lock, which Linux drops as soon as the process closes any descriptor of the
/// memory file: if two ranks of a job are threads of one process, all its ranks must be. `part` is nullptr if all ranks
/// of the job are on this node.
Result<std::unique_ptr<Memory>> make_shm_memory(const std::string& job, int rank, int size, Deadline deadline,
                                                runtime::MeetingOptions options = {},
                                                const PartOfJob* part = nullptr);

}  // namespace tarantella::transport
