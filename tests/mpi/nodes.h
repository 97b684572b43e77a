#pragma once
// This process as a node that mpiexec has started. One endpoint a process, since MPI starts only once.

#include "transport/endpoint.h"

namespace mpi_tests {

/// As mpiexec says; 1 without it.
int nodes();
/// The endpoint, made on the first call. A failure ends the process.
tarantella::transport::Endpoint& endpoint();
/// Lets go of the endpoint without a close().
void drop_endpoint();
/// Calls progress() until all nodes have come here.
void meet(tarantella::transport::Endpoint& endpoint);

}  // namespace mpi_tests
