#pragma once
// Shared memory between the processes of one node.

#include <memory>
#include <string>

#include "base/clock.h"
#include "runtime/rendezvous.h"
#include "transport/memory.h"

namespace tarantella::transport {

/// Meets the other ranks of `job` (blocks until `deadline`, see runtime/rendezvous.h) and shares memory with them.
/// Not for use in a forked child. The others see that this process lives by a lock that Linux drops as soon as the
/// process closes any descriptor of the memory file: several ranks of a job share a process only if all of them do.
Result<std::unique_ptr<Memory>> make_shm_memory(const std::string& job, int rank, int size, Deadline deadline,
                                                runtime::MeetingOptions options = {});

}  // namespace tarantella::transport
