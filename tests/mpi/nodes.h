#pragma once
// This process as a node that mpiexec has started. One wire a process, since MPI starts only once.

#include "transport/wire.h"

namespace mpi_tests {

/// As mpiexec says; 1 without it.
int nodes();
/// The wire, made on the first call. A failure ends the process.
tarantella::transport::Wire& wire();
/// Lets go of the wire without a close().
void drop_wire();
/// Calls progress() until all nodes have come here.
void meet(tarantella::transport::Wire& wire);

}  // namespace mpi_tests
