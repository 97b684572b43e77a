#pragma once
// How one node launcher is started on each host: mpiexec of the MPI, or srun.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cluster/mpi.h"
#include "launch/command.h"
#include "launch/environment.h"
#include "launch/hosts/plan.h"

namespace tarantella::launch {

/// The variable by which a launcher knows that it is a node launcher: "secret port address,address".
constexpr char kNode[] = "TARANTELLA_NODE";

/// How long a remote shell may take to connect, in seconds.
constexpr int kShellSeconds = 7;

struct Starter {
  Command command;
  Additions variables;  ///< for the command's environment
  std::string why;      ///< "mpiexec of MPICH 5.0.2, beside this Python": for the user
  bool is_srun = false;
};

/// The command that starts `launcher` once on each host of the plan, with the descriptors and variables by which it can
/// be the MPI process of its host. In a Slurm job it is srun if Slurm has a plugin that fits the MPI, else the MPI's
/// mpiexec. Asks srun for its plugins. `address` is the head's for the hosts; may be empty.
Starter starter_for(const Plan& plan, const Mpi& mpi, const std::string& launcher, const std::string& address,
                    const Environment& user);

/// The plugin of `srun --mpi=list` that fits the MPI; empty if none does. Pure.
std::string plugin_for(const Mpi& mpi, const std::string& list);

/// Removes the variables that tell a process its place in an MPI job. Pure.
void forget_mpi(Environment& environment);

/// Whether such a starter sets this variable for its process on a host, so that the value of that host counts. Pure.
bool is_of_starter(const std::string& name);

/// The number of this host in the job, as the starter has told this process; -1: it has not. Pure.
int node_in(const Environment& environment);

}  // namespace tarantella::launch
