#pragma once
// The hosts that a batch system has given to this job: Slurm, PBS or LSF.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/hosts/hosts.h"
#include "launch/system/environment.h"
#include "runtime/topology/gpus.h"

namespace tarantella::launch {

enum class BatchSystem { kNone, kSlurm, kPbs, kLsf };

struct Allocation {
  BatchSystem system = BatchSystem::kNone;
  std::string job;  ///< for messages: "Slurm job 12"
  std::vector<Host> hosts;
  bool slots_are_tasks = false;  ///< the slots are the tasks per host that the user asked for
  /// This process runs in a Slurm step on fewer or more hosts than the job has: Slurm's variables have the tasks of the
  /// step, not those of the job's hosts.
  bool inside_step = false;
  std::optional<int> gpus;  ///< of each host, from Slurm's variables in the shell of salloc; unset: not known
};

/// The allocation of the job in which this process runs, from `environment` and the host files that it names; none
/// outside of jobs. `read` returns the content of a file. kInvalidArgument, with one line that names the variable or
/// file, if a list cannot be read.
Result<std::optional<Allocation>> find_allocation(
    const Environment& environment, const std::function<Result<std::string>(const std::string&)>& read);

/// The GPUs of a host in what squeue calls a job's resources: "gres:gpu:a100:2,gres/gpu:1" is 3. Unset if it has none,
/// or what cannot be read. Pure.
std::optional<int> gpus_of_resources(const std::string& list);

/// Whether a process on a node of a Slurm job has no GPU from Slurm: the node's GPUs, which /proc shows nevertheless,
/// may be another job's, or Slurm may not know of them. Pure.
bool slurm_gives_no_gpu(const Environment& environment);

/// The GPUs of this host that the job may use. Their driver is not mentioned if slurm_gives_no_gpu(): then nobody is
/// warned that they are not used.
runtime::Gpus gpus_here(const Environment& environment);

/// The numbers of Slurm's short form: "2(x3),1" is 2, 2, 2, 1. kInvalidArgument with "column N: " and a reason. Pure.
Result<std::vector<int>> expand_counts(std::string_view list);

/// Each host of `parts` once, in the order of their first appearance, with the sum of its slots. Pure.
std::vector<Host> merged(const std::vector<Host>& parts);

}  // namespace tarantella::launch
