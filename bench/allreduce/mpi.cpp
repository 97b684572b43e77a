// MPI_Allreduce in place.   mpirun -n N mpi FILE SIZES ROW

#include <mpi.h>

#include "loop.h"

int main(int argc, char** argv) {
  if (argc != 4) bench::fail("usage: mpirun -n N mpi FILE SIZES ROW");
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != bench::kRanks) bench::fail("mpirun did not start the ranks of one job");
  bench::Loop loop(argv[1], argv[2], rank);
  loop.measure(argv[3], loop.private_buffer(), [](float* data, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  MPI_Finalize();
}
