#pragma once
// The errors of the remote launcher, found in its output.

#include <string>
#include <string_view>

namespace tarantella::launch {

/// The most informative line of the output: the first that is not mpiexec's own trace. MPICH's mpiexec may end before
/// it has passed on the output of ssh. Open MPI's has messages of several lines between lines of dashes; that a daemon
/// was lost is one, and anything outside of messages is more informative. Pure.
std::string error_in(std::string_view output);

/// Why the batch system or mpiexec itself has ended a running job, in whole lines: "slurmstepd: *** STEP 2.0 ON n1
/// CANCELLED", or that mpiexec's own limit has passed. Empty if the output does not say so. Pure.
std::string termination_notices(std::string_view output);

/// Which host cannot run which program; empty unless the output says so in finished lines. MPICH:
/// "[proxy:1@node2] ... execvp error on file /path/tarantella (No such file or directory)"; Open MPI: a message with
/// the lines "Executable: /path/tarantella" and "Node: node2". Pure.
std::string missing_program(std::string_view output);

}  // namespace tarantella::launch
