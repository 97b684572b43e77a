#pragma once
// How one agent is started on each host: mpiexec of the MPI, or srun.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cluster/mpi.h"
#include "launch/hosts/host_layout.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"

namespace tarantella::launch {

/// The variable that makes a launcher an agent: where its coordinator is, as "secret port address,address".
constexpr char kCoordinatorVariable[] = "TARANTELLA_COORDINATOR";

/// How long a remote shell may take to connect, in seconds.
constexpr int kShellSeconds = 7;

struct RemoteLauncher {
  Command command;
  EnvironmentOverrides environment;  ///< for the command
  std::string description;           ///< "mpiexec of MPICH 5.0.2, beside this Python": for the user
  bool is_srun = false;
  bool sends_environment = false;  ///< as hydra does, in clear text
};

/// The command that starts `launcher` once on each host of the layout, with the descriptors and variables by which it
/// can be the MPI process of its host. In a Slurm job it is srun if Slurm has a plugin that fits the MPI, else the
/// MPI's mpiexec. Asks srun for its plugins. `address` is the coordinator's for the hosts; may be empty.
RemoteLauncher remote_launcher_for(const HostLayout& layout, const Mpi& mpi, const std::string& launcher,
                                   const std::string& address, const Environment& environment);

/// The part of `environment` that the remote launcher gets. If it would send that on in clear text, it gets nothing
/// whose name looks like a secret's. Ranks get the whole environment through our own connection. Pure.
Environment environment_for(const RemoteLauncher& remote, const Environment& environment);

/// The plugin of `srun --mpi=list` that fits the MPI; empty if none does. Pure.
std::string plugin_for(const Mpi& mpi, const std::string& list);

/// Removes the variables that describe a process's place in an MPI job. Pure.
void remove_mpi_variables(Environment& environment);

/// Whether such a remote launcher sets this variable for its process on a host, so that the value of that host counts.
/// Pure.
bool is_remote_launcher_variable(const std::string& name);

/// The number of this host in the job, from the remote launcher's variables; -1 if there are none. Pure.
int host_index_from(const Environment& environment);

}  // namespace tarantella::launch
