#pragma once
// Starts MPI in one process of each node: under mpiexec or srun, or with a process manager of our own. What MPI changes
// in the process meanwhile is taken back.

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "transport/endpoint.h"

namespace tarantella::transport {

/// Collective over the nodes. Loads MPI and its plugin (`mpi_library` as in load_mpi()), starts MPI, and compares its
/// rank and size with `node` and `nodes`. Blocks until all nodes have called it, and logs every `warn_every` that it
/// waits; MPI itself ends a process whose start fails. From here on only the thread in progress() is in MPI. Signal
/// handlers that MPI installs are taken back, and its files in /dev/shm unlinked where no other process of the host
/// needs them, so that nothing is left if the process is killed. What MPI reads from the environment is set for that
/// time, unless the user has set it (mpi_settings.cpp). Errors: those of load_mpi(); kTimeout at the deadline, when
/// a thread stays in MPI until the process ends; kMismatch if MPI has started other processes than the launcher says;
/// kSystem.
Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    Deadline deadline, Duration warn_every);

/// The same for processes that no mpiexec has started as one for each node: node 0 is the process manager of MPI for
/// the others. `leader_sockets`: on node 0 the connections to the nodes 1, 2, …; on others that to node 0
/// (runtime/leader_bootstrap.h). Needs MPICH or Intel MPI: kInvalidArgument for Open MPI. close() does not finalize
/// MPI, which nobody waits for here. The connections stay open: their ends tell that a peer has died.
Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    std::vector<Fd> leader_sockets, Deadline deadline,
                                                    Duration warn_every);

}  // namespace tarantella::transport
