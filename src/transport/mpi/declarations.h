#pragma once
// What plugin.cpp needs of MPI, as the MPI-5 standard ABI (MPICH 5, Intel MPI 2021.17) or Open MPI (libmpi.so.40)
// declares it. With these, a plugin is built where no MPI is installed. tests/mpi compares them with both headers.

#include <cstddef>
#include <cstdint>

#ifdef TARANTELLA_OPENMPI
#include "transport/mpi/declarations_openmpi.h"
#else
#include "transport/mpi/declarations_standard.h"
#endif

// NOLINTBEGIN: names and types are MPI's
extern "C" {
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm);
int MPI_Comm_free(MPI_Comm* comm);
int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_set_info(MPI_Comm comm, MPI_Info info);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler errhandler);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm);
int MPI_Error_class(int errorcode, int* errorclass);
int MPI_Error_string(int errorcode, char* string, int* resultlen);
int MPI_Finalize(void);
int MPI_Finalized(int* flag);
int MPI_Get_library_version(char* version, int* resultlen);
int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int MPI_Info_create(MPI_Info* info);
int MPI_Info_free(MPI_Info* info);
int MPI_Info_set(MPI_Info info, const char* key, const char* value);
int MPI_Initialized(int* flag);
int MPI_Query_thread(int* provided);
int MPI_Testsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]);
}
// NOLINTEND
