#pragma once
// What a command line starts, and where: decided before anything runs.

#include <string>

#include "base/status.h"
#include "launch/cli/options.h"
#include "launch/cli/restart_options.h"
#include "launch/hosts/host_layout.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"
#include "runtime/topology/gpus.h"

namespace tarantella::launch {

struct LaunchPlan {
  Options options;               ///< completed by the environment
  Environment environment = {};  ///< that all ranks have, with the variables of -x
  std::string folder = {};       ///< of this executable
  Command command = {};          ///< runs the script
  runtime::Gpus gpus = {};       ///< of this machine
  HostLayout layout = {};
  RestartOptions restarts = {};
  /// This machine is outside of the batch job, which has one host: srun starts tarantella there.
  bool through_srun = false;
};

/// Reads the environment, the hostfile and Slurm's variables, and checks that all can run. Starts and writes nothing.
/// Blocks as host_layout_for() does. Errors, each one line: kInvalidArgument for the command line; its message is empty
/// in a task of srun or mpirun whose first task reports it. kSystem if no program runs the script.
Result<LaunchPlan> plan_launch(Options options);

}  // namespace tarantella::launch
