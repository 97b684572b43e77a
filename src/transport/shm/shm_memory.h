#pragma once
// Shared memory between the processes of one node.

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/rendezvous.h"
#include "transport/node_memory.h"

namespace tarantella::transport {

/// The ranks of a node in a job on several nodes.
struct NodeRanks {
  std::vector<int> job_ranks;  ///< the number in the job of each rank of the node
  int job_size;                ///< the number of ranks in the job
};

/// Joins the other ranks of `job` on this node, `size` ranks, and shares memory with them. Blocks until all have come
/// or `deadline` has passed. Errors: those of runtime/rendezvous.h; kSystem. Not for use in a forked child. Other ranks
/// see that this process is alive by a lock, which Linux drops as soon as the process closes any descriptor of the
/// memory file: if two ranks of a job are threads of one process, all its ranks must be. `node` is nullptr if all ranks
/// of the job are on this node.
Result<std::unique_ptr<NodeMemory>> make_shm_memory(const std::string& job, int rank, int size,
                                                    Deadline deadline,
                                                    runtime::RendezvousOptions options = {},
                                                    const NodeRanks* node = nullptr);

}  // namespace tarantella::transport
