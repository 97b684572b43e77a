#pragma once
// See declarations.h.

#include <cstdint>

// NOLINTBEGIN: names and types are MPI's
extern "C" {
typedef struct MPI_ABI_Comm* MPI_Comm;
typedef struct MPI_ABI_Datatype* MPI_Datatype;
typedef struct MPI_ABI_Errhandler* MPI_Errhandler;
typedef struct MPI_ABI_Info* MPI_Info;
typedef struct MPI_ABI_Message* MPI_Message;
typedef struct MPI_ABI_Request* MPI_Request;
typedef struct MPI_T_cvar_handle_t* MPI_T_cvar_handle;
typedef int64_t MPI_Count;

typedef struct {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int MPI_internal[5];
} MPI_Status;

#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_INFO_NULL ((MPI_Info)0x130)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_MESSAGE_NULL ((MPI_Message)0x128)

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_IN_STATUS = 19,
  MPI_ERR_NO_MEM = 39,
  MPI_ANY_SOURCE = -1,
  MPI_ANY_TAG = -2,
  MPI_UNDEFINED = -32766,
  MPI_COMM_TYPE_SHARED = 221,
  MPI_THREAD_SINGLE = 0,
  MPI_THREAD_SERIALIZED = 2048,
  MPI_MAX_ERROR_STRING = 512,
  MPI_MAX_LIBRARY_VERSION_STRING = 8192
};

int MPI_Get_count_c(const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count);
int MPI_Imrecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message,
                 MPI_Request* request);
int MPI_Irecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                MPI_Request* request);
int MPI_T_cvar_get_index(const char* name, int* cvar_index);
int MPI_T_cvar_handle_alloc(int cvar_index, void* obj_handle, MPI_T_cvar_handle* handle, int* count);
int MPI_T_cvar_handle_free(MPI_T_cvar_handle* handle);
int MPI_T_cvar_write(MPI_T_cvar_handle handle, const void* buf);
int MPI_T_init_thread(int required, int* provided);
int MPI_Isend_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                MPI_Request* request);
}
// NOLINTEND
