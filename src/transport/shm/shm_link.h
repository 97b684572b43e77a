#pragma once
// Shared memory between the processes of one node.

#include <memory>
#include <string>

#include "base/clock.h"
#include "runtime/rendezvous.h"
#include "transport/link.h"

namespace tarantella::transport {

/// Meets the other ranks of `job` (blocks until `deadline`, see runtime/rendezvous.h) and links them.
/// Destroying the link marks this rank as left. Not for use in a forked child.
Result<std::unique_ptr<Link>> make_shm_link(const std::string& job, int rank, int size, Deadline deadline,
                                            runtime::MeetingOptions options = {});

}  // namespace tarantella::transport
