#include "launch/hosts/srun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "launch/hosts/allocation.h"
#include "launch/system/message.h"

namespace tarantella::launch {
namespace {

/// A program that starts several tasks, and its variables for their number and the rank of this one.
struct TaskLauncher {
  const char* name;
  const char* program;  ///< what it should start in place of this launcher
  const char* size;
  const char* rank;
  const char* also;  ///< only where this is set, too
};

constexpr TaskLauncher kTaskLaunchers[] = {
    {"torchrun", "model.py", "WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID"},
    {"mpirun", "python model.py", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK"},
    {"mpiexec", "python model.py", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
    {"srun", "python model.py", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_ID"}};

}  // namespace

bool is_outside_of_slurm_job(const Environment& environment) {
  return environment.contains("SLURM_JOB_ID") && environment.contains("SLURM_JOB_NODELIST") &&
         !environment.contains("SLURMD_NODENAME");
}

Result<Command> command_through_srun(const std::string& launcher, const std::vector<std::string>& arguments,
                                     const std::string& host, const Environment& environment) {
  const std::string srun = program_in(value_of(environment, "PATH").value_or(kDefaultPath), "srun");
  if (srun.empty()) return Status(Code::kSystem, "there is no srun in PATH, which the shell of salloc needs");
  Command command{srun,
                  {"srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=" + host,
                   "--overlap", "--unbuffered", "--quit-on-interrupt", "--kill-on-bad-exit=1", "--mpi=none"}};
  const Result<std::vector<int>> cpus = expand_counts(stripped_value(environment, "SLURM_JOB_CPUS_PER_NODE"));
  if (cpus.ok()) command.argv.push_back(text("--cpus-per-task=", cpus.value()[0]));
  command.argv.push_back(launcher);
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  return command;
}

Status exec_through_srun(const Command& command, int tasks, const Environment& environment) {
  std::vector<std::string> variables = to_envp(environment, {{kTasksVariable, std::to_string(tasks)}});
  std::vector<char*> argv, envp;
  for (const std::string& argument : command.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(command.program.c_str(), argv.data(), envp.data());
  return Status::system("cannot start " + command.program, errno);
}

bool is_shell(const std::string& program) {
  constexpr const char* kShells[] = {"bash", "sh", "dash", "zsh", "ksh", "fish", "csh", "tcsh"};
  return std::find(std::begin(kShells), std::end(kShells), program) != std::end(kShells);
}

Status check_started_once(const Environment& environment, bool by_shell) {
  if (environment.contains("TNT_RANK") || environment.contains("TNT_RANK_PID")) return {};
  for (const TaskLauncher& launcher : kTaskLaunchers) {
    const std::string size = stripped_value(environment, launcher.size);
    if (size.empty() || size == "1" || !environment.contains(launcher.also)) continue;
    if (stripped_value(environment, launcher.rank) != "0" && !by_shell) return {Code::kInvalidArgument, ""};
    return {Code::kInvalidArgument,
            text(launcher.name, " has started tarantella ", printable(size),
                 " times, and each would start all ranks: "
                 "leave out ",
                 launcher.name, ", or let it start the ranks itself (", launcher.name, " ", launcher.program,
                 "); if this is a job of its own, unset ", launcher.size)};
  }
  return {};
}

}  // namespace tarantella::launch
