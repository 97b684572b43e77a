#include "launch/hosts/srun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "launch/hosts/allocation.h"
#include "launch/say.h"

namespace tarantella::launch {
namespace {

/// Who starts several tasks, and in which variables it tells their number and which one this is.
struct Starter {
  const char* name;
  const char* program;  ///< what it takes in place of this launcher
  const char* size;
  const char* rank;
  const char* also;  ///< only where this is set, too
};

constexpr Starter kStarters[] = {
    {"torchrun", "model.py", "WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID"},
    {"mpirun", "python model.py", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK"},
    {"mpiexec", "python model.py", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"},
    {"srun", "python model.py", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_ID"}};

}  // namespace

bool is_outside_of_slurm_job(const Environment& environment) {
  return environment.contains("SLURM_JOB_ID") && environment.contains("SLURM_JOB_NODELIST") &&
         !environment.contains("SLURMD_NODENAME");
}

Result<Command> command_through_srun(const std::string& launcher, const std::vector<std::string>& words,
                                     const std::string& host, const Environment& environment) {
  const std::string srun = program_in(value_of(environment, "PATH").value_or(kUsualPath), "srun");
  if (srun.empty()) return Status(Code::kSystem, "there is no srun in PATH, which the shell of salloc needs");
  Command command{srun,
                  {"srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=" + host,
                   "--overlap", "--unbuffered", "--quit-on-interrupt", "--kill-on-bad-exit=1", "--mpi=none"}};
  const Result<std::vector<int>> cpus = expand_counts(stripped(environment, "SLURM_JOB_CPUS_PER_NODE"));
  if (cpus.ok()) command.words.push_back(text("--cpus-per-task=", cpus.value()[0]));
  command.words.push_back(launcher);
  command.words.insert(command.words.end(), words.begin(), words.end());
  return command;
}

Status exec_through_srun(const Command& command, int tasks, const Environment& environment) {
  std::vector<std::string> variables = joined(environment, {{kTasks, std::to_string(tasks)}});
  std::vector<char*> argv, envp;
  for (const std::string& word : command.words) argv.push_back(const_cast<char*>(word.c_str()));
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
  for (const Starter& starter : kStarters) {
    const std::string size = stripped(environment, starter.size);
    if (size.empty() || size == "1" || !environment.contains(starter.also)) continue;
    if (stripped(environment, starter.rank) != "0" && !by_shell) return {Code::kInvalidArgument, ""};
    return {Code::kInvalidArgument,
            text(starter.name, " has started tarantella ", printable(size),
                 " times, and each would start all ranks: "
                 "leave out ",
                 starter.name, ", or let it start the ranks itself (", starter.name, " ", starter.program,
                 "); if this is a job of its own, unset ", starter.size)};
  }
  return {};
}

}  // namespace tarantella::launch
