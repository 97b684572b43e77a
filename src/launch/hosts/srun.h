#pragma once
// How this launcher reaches the host of a Slurm job from outside, and notices that it was started several times.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"

namespace tarantella::launch {

/// The variable with the tasks per node that the user has asked for, for a launcher that srun starts: srun replaces
/// Slurm's own variable, because it starts one task.
constexpr char kTasksVariable[] = "TARANTELLA_TASKS";

/// Whether this process is in a Slurm job but not on a node of it: in the shell of salloc. Pure.
bool is_outside_of_slurm_job(const Environment& environment);

/// The command that runs `launcher` with `arguments` once on `host`, with all CPUs of the job there and its exit code.
/// Pure, except that it looks for srun in PATH; kSystem if there is none.
Result<Command> command_through_srun(const std::string& launcher, const std::vector<std::string>& arguments,
                                     const std::string& host, const Environment& environment);

/// Runs the command in place of this process, with `tasks` in kTasksVariable. Returns only if that fails.
Status exec_through_srun(const Command& command, int tasks, const Environment& environment);

/// kInvalidArgument if srun, mpirun or torchrun has started this launcher in several tasks: each would start all ranks.
/// Only the first task is to print the message, so it is empty in the others. `by_shell`: a shell has started this
/// launcher. Then the message is never empty, since the user's shell may have inherited the variables of another task.
/// A launcher that a rank starts is fine. Pure.
Status check_started_once(const Environment& environment, bool by_shell);
/// Whether a program of this name is a shell. Pure.
bool is_shell(const std::string& program);

}  // namespace tarantella::launch
