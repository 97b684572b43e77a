#pragma once
// The agent as a process, apart from the mpiexec or srun that has started it.

#include <optional>

#include "launch/system/environment.h"

namespace tarantella::launch {

/// Closes the descriptors that mpiexec has leaked. Returns that of PMI, which programs do not inherit by default; -1 if
/// there is none.
int close_leaked_descriptors(const Environment& environment);

/// Goes on in a child with a session of its own; the exit code for this process when the child has ended. An mpiexec
/// that loses a host kills what it has started on all others at once: the child survives, reports to the coordinator,
/// and ends its ranks. It gets SIGHUP then.
std::optional<int> continue_in_child();

}  // namespace tarantella::launch
