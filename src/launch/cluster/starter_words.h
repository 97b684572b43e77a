#pragma once
// What the MPI's launcher says when it cannot start the node launchers.

#include <string>
#include <string_view>

namespace tarantella::launch {

/// The line of the starter's output that tells most: the first that is not mpiexec's own trace. MPICH's mpiexec may end
/// before it has passed on what ssh says. Open MPI's has messages of several lines between lines of dashes; that a
/// daemon was lost is one, and anything outside of messages tells more. Pure.
std::string telling(std::string_view words);

/// What the batch system or mpiexec itself has ended a running job for, in whole lines: "slurmstepd: *** STEP 2.0 ON n1
/// CANCELLED", or that mpiexec's own limit has passed. Empty if they say nothing of it. Pure.
std::string said_by_starter(std::string_view words);

/// Which host cannot run which program, empty as long as the words do not say so in finished lines. MPICH:
/// "[proxy:1@node2] ... execvp error on file /path/tarantella (No such file or directory)"; Open MPI: a message with
/// the lines "Executable: /path/tarantella" and "Node: node2". Pure.
std::string missing_program(std::string_view words);

}  // namespace tarantella::launch
