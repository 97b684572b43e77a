#pragma once
// See declarations.h.

#include <cstddef>

// NOLINTBEGIN: names and types are MPI's
extern "C" {
typedef struct ompi_communicator_t* MPI_Comm;
typedef struct ompi_datatype_t* MPI_Datatype;
typedef struct ompi_errhandler_t* MPI_Errhandler;
typedef struct ompi_info_t* MPI_Info;
typedef struct ompi_message_t* MPI_Message;
typedef struct ompi_request_t* MPI_Request;

typedef struct {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int _cancelled;
  size_t _ucount;
} MPI_Status;

extern struct ompi_predefined_communicator_t ompi_mpi_comm_world, ompi_mpi_comm_self;
extern struct ompi_predefined_info_t ompi_mpi_info_null;
extern struct ompi_predefined_errhandler_t ompi_mpi_errors_return;
extern struct ompi_predefined_datatype_t ompi_mpi_byte;
extern struct ompi_predefined_message_t ompi_message_null;

#define MPI_COMM_WORLD reinterpret_cast<MPI_Comm>(&ompi_mpi_comm_world)
#define MPI_COMM_SELF reinterpret_cast<MPI_Comm>(&ompi_mpi_comm_self)
#define MPI_INFO_NULL reinterpret_cast<MPI_Info>(&ompi_mpi_info_null)
#define MPI_ERRORS_RETURN reinterpret_cast<MPI_Errhandler>(&ompi_mpi_errors_return)
#define MPI_BYTE reinterpret_cast<MPI_Datatype>(&ompi_mpi_byte)
#define MPI_MESSAGE_NULL reinterpret_cast<MPI_Message>(&ompi_message_null)

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_IN_STATUS = 18,
  MPI_ERR_NO_MEM = 39,
  MPI_ERR_PROC_FAILED = 75,
  MPI_ERR_PROC_FAILED_PENDING = 76,
  MPI_ANY_SOURCE = -1,
  MPI_ANY_TAG = -1,
  MPI_UNDEFINED = -32766,
  MPI_COMM_TYPE_SHARED = 0,
  MPI_THREAD_SINGLE = 0,
  MPI_THREAD_SERIALIZED = 2,
  MPI_MAX_ERROR_STRING = 256,
  MPI_MAX_LIBRARY_VERSION_STRING = 256
};

int MPI_Get_count(const MPI_Status* status, MPI_Datatype datatype, int* count);
int MPI_Imrecv(void* buf, int count, MPI_Datatype datatype, MPI_Message* message, MPI_Request* request);
int MPI_Irecv(void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* request);
int MPI_Isend(const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request* request);
int MPIX_Comm_failure_ack(MPI_Comm comm);
}
// NOLINTEND
