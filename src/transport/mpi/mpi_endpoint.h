#pragma once
// An endpoint between the nodes of a job, through MPI: node k is rank k of MPI_COMM_WORLD. One process a node calls
// MPI.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/mpi/plugin_api.h"

namespace tarantella::transport {

/// Collective over the nodes. Loads MPI and its plugin (`mpi_library` as in load_mpi()), starts MPI, and compares its
/// rank and size with `node` and `nodes`. Blocks until all nodes have called it, and logs every `warn_every` that it
/// waits; MPI itself ends a process whose start fails. From here on only the thread in progress() is in MPI. Signal
/// handlers that MPI installs are taken back, and its files in /dev/shm unlinked where no other process of the host
/// needs them, so that nothing is left if the process is killed. What MPI reads from the environment is set for that
/// time, unless the user has set it (mpi_settings.cpp). Errors: those of load_mpi(); kTimeout at the deadline, when
/// a thread stays in MPI until the process ends; kMismatch if MPI has started other processes than the launcher says;
/// kSystem.
///
/// A receive that is cancelled ends at once unless its message is arriving. A send ends when MPI lets go of it,
/// cancelled or not. What MPI has not let go of when the endpoint is destroyed keeps its owner until the process ends.
///
/// Where MPI notices that a peer has died, transfers with it end with kPeerLost, and later sends to it at once.
/// Intel MPI does not: over TCP, a send to a process that has died may keep progress() from returning for ever.
///
/// close() waits, until its deadline, for the close() of all other nodes, and finalizes MPI only if all have come and
/// no transfer is on its way: MPI_Finalize may else wait for ever for a node that is dead or busy. It runs on a thread
/// of its own, and close() waits a second for it: another node may have passed its deadline meanwhile, and never call
/// it. A process that ends without MPI_Finalize loses nothing. But `mpiexec` must be told not to end the others then
/// (-disable-auto-cleanup; Open MPI: --runtime-options continuous,error-nonzero-status=0). After close(), or where MPI
/// has been finalized, make_mpi_endpoint() fails.
Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    Deadline deadline, Duration warn_every);

/// The same for processes that no mpiexec has started as one for each node: node 0 is the process manager of MPI for
/// the others. `leader_sockets`: on node 0 the connections to the nodes 1, 2, …; on others that to node 0
/// (runtime/leader_bootstrap.h). Needs MPICH or Intel MPI: kInvalidArgument for Open MPI. close() does not finalize
/// MPI, which nobody waits for here. The connections stay open: their ends tell that a peer has died.
Result<std::unique_ptr<Endpoint>> make_mpi_endpoint(const std::string& mpi_library, int node, int nodes,
                                                    std::vector<Fd> leader_sockets, Deadline deadline,
                                                    Duration warn_every);

/// An endpoint over an MPI that has been started; close() finalizes it if `finalizes`. `mpi` must outlive it.
/// `liveness`: by rank, a connection that ends when the peer's process or machine does, or cannot be reached any more:
/// transfers with it then end with kPeerLost. Some or all may be missing.
std::unique_ptr<Endpoint> endpoint_over(const TntMpi& mpi, int rank, int size, bool finalizes,
                                        std::map<int, Fd> liveness = {});

}  // namespace tarantella::transport
