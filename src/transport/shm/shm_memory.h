#pragma once
// Shared memory between the processes of one node.

#include <memory>
#include <string>

#include "base/clock.h"
#include "runtime/rendezvous.h"
#include "transport/memory.h"

namespace tarantella::transport {

/// Meets the other ranks of `job` and shares memory with them. Blocks until all have come or `deadline` has passed.
/// Errors: those of runtime/rendezvous.h; kSystem. Not for use in a forked child. Other ranks see that this process is
/// alive by a lock, which Linux drops as soon as the process closes any descriptor of the memory file: if two ranks of
/// a job are threads of one process, all its ranks must be.
Result<std::unique_ptr<Memory>> make_shm_memory(const std::string& job, int rank, int size, Deadline deadline,
                                                runtime::MeetingOptions options = {});

}  // namespace tarantella::transport
