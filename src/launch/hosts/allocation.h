#pragma once
// The hosts that a batch system has given to this job: Slurm, PBS or LSF.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/environment.h"
#include "launch/hosts/hosts.h"

namespace tarantella::launch {

enum class BatchSystem { kNone, kSlurm, kPbs, kLsf };

struct Allocation {
  BatchSystem system = BatchSystem::kNone;
  std::string job;  ///< for messages: "Slurm job 12"
  std::vector<Host> hosts;
  bool counts_tasks = false;  ///< the slots are the tasks per host that the user asked for
  bool is_in_step =
      false;  ///< Slurm tells the tasks of the step on other hosts in which this process runs instead
  std::optional<int> gpus;  ///< of each host, as Slurm tells the shell of salloc; unset: it does not
};

/// The allocation in whose job this process runs, as `environment` and the host files that it names say; none outside
/// of jobs. `read` returns the content of a file. kInvalidArgument, with one line that names the variable or file, if a
/// list cannot be read.
Result<std::optional<Allocation>> find_allocation(
    const Environment& environment, const std::function<Result<std::string>(const std::string&)>& read);

/// The GPUs of a host in what squeue calls a job's resources: "gres:gpu:a100:2,gres/gpu:1" is 3. Unset if it has none,
/// or what cannot be read. Pure.
std::optional<int> gpus_of_resources(const std::string& list);

/// Whether a process on a node of a Slurm job has no GPU from Slurm: the node's GPUs, which /proc shows nevertheless,
/// may be another job's, or Slurm may not know of them. Pure.
bool slurm_gives_no_gpu(const Environment& environment);

/// The numbers of Slurm's short form: "2(x3),1" is 2, 2, 2, 1. kInvalidArgument with "column N: " and a reason. Pure.
Result<std::vector<int>> expand_counts(std::string_view list);

/// Each host of `parts` once, in the order of their first appearance, with the sum of its slots. Pure.
std::vector<Host> summed(const std::vector<Host>& parts);

}  // namespace tarantella::launch
