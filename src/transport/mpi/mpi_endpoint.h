#pragma once
// An endpoint between the nodes of a job, through MPI: node k is rank k of MPI_COMM_WORLD. One process a node calls
// MPI.

#include <map>
#include <memory>

#include "base/fd.h"
#include "transport/endpoint.h"
#include "transport/mpi/plugin_api.h"

namespace tarantella::transport {

/// An endpoint over an MPI that has been started; close() finalizes it if `finalizes`. `mpi` must outlive it.
/// `liveness`: by rank, a connection that ends when the peer's process or machine does, or cannot be reached any more:
/// transfers with it then end with kPeerLost. Some or all may be missing.
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
/// has been finalized, make_mpi_endpoint() (mpi_start.h) fails.
std::unique_ptr<Endpoint> endpoint_over(const TntMpi& mpi, int rank, int size, bool finalizes,
                                        std::map<int, Fd> liveness = {});

}  // namespace tarantella::transport
