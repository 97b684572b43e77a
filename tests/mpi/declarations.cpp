// What plugin.cpp takes from src/transport/mpi/declarations.h is what the header of the MPI says. One program for an
// MPI: this file is compiled with the header first (TARANTELLA_HEADER), and again without it.

#ifdef TARANTELLA_HEADER
#include TARANTELLA_HEADER
#else
#include "transport/mpi/declarations.h"
#endif

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace mpi_tests {

std::vector<intptr_t> of_header();

#ifdef TARANTELLA_HEADER
std::vector<intptr_t> of_header()
#else
static std::vector<intptr_t> declared()
#endif
{
  return {MPI_SUCCESS,
          MPI_ERR_IN_STATUS,
          MPI_ERR_NO_MEM,
          MPI_ANY_SOURCE,
          MPI_ANY_TAG,
          MPI_UNDEFINED,
          MPI_COMM_TYPE_SHARED,
          MPI_THREAD_SINGLE,
          MPI_THREAD_SERIALIZED,
          MPI_MAX_ERROR_STRING,
          MPI_MAX_LIBRARY_VERSION_STRING,
          sizeof(MPI_Status),
          offsetof(MPI_Status, MPI_SOURCE),
          offsetof(MPI_Status, MPI_TAG),
          offsetof(MPI_Status, MPI_ERROR),
          sizeof(MPI_Comm),
          sizeof(MPI_Message),
          sizeof(MPI_Request),
#ifdef TARANTELLA_OPENMPI
          MPI_ERR_PROC_FAILED,
          MPI_ERR_PROC_FAILED_PENDING};
#else
          sizeof(MPI_Count),
          reinterpret_cast<intptr_t>(MPI_COMM_WORLD),
          reinterpret_cast<intptr_t>(MPI_COMM_SELF),
          reinterpret_cast<intptr_t>(MPI_INFO_NULL),
          reinterpret_cast<intptr_t>(MPI_ERRORS_RETURN),
          reinterpret_cast<intptr_t>(MPI_BYTE),
          reinterpret_cast<intptr_t>(MPI_MESSAGE_NULL)};
#endif
}

}  // namespace mpi_tests

#ifndef TARANTELLA_HEADER
int main() {
  const auto ours = mpi_tests::declared(), theirs = mpi_tests::of_header();
  for (size_t each = 0; each < ours.size(); ++each) {
    if (ours[each] == theirs.at(each)) continue;
    std::printf("number %zu is %jd, but the header says %jd\n", each, intmax_t{ours[each]},
                intmax_t{theirs[each]});
    return 1;
  }
  return 0;
}
#endif
