// MPI_Allreduce in place, and into other memory if that row has a name.   mpirun -n N mpi FILE SIZES ROW [ROW]

#include <mpi.h>

#include "loop.h"

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) bench::fail("usage: mpirun -n N mpi FILE SIZES ROW [ROW]");
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != bench::kRanks) bench::fail("mpirun did not start the ranks of one job");
  bench::Loop loop(argv[1], argv[2], rank);
  float* const buffer = loop.private_buffer();
  const auto sum = [](const void* from, float* to, size_t count) {
    MPI_Allreduce(from, to, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  loop.measure(argv[3], buffer, [&](float* data, size_t count) { sum(MPI_IN_PLACE, data, count); });
  if (argc == 5) {
    float* const sums = loop.private_buffer();
    loop.measure(argv[4], buffer, [&](float* data, size_t count) {
      sum(data, sums, count);
      return sums;
    });
  }
  MPI_Finalize();
}
