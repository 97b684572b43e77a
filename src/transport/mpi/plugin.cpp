// Compiled once for each ABI of MPI, and linked to none: the core loads the library of MPI first, for all to see.

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "transport/mpi/declarations.h"
#include "transport/mpi/plugin_api.h"

namespace {

static_assert(sizeof(MPI_Request) == sizeof(TntMpiRequest) && sizeof(MPI_Message) == sizeof(TntMpiMessage));

// Open MPI 5 has no calls for more than an int counts.
#ifdef TARANTELLA_OPENMPI
using Count = int;
int isend(const void* bytes, Count count, int to, int tag, MPI_Comm all, MPI_Request* request) {
  return MPI_Isend(bytes, count, MPI_BYTE, to, tag, all, request);
}
int irecv(void* bytes, Count count, int from, int tag, MPI_Comm all, MPI_Request* request) {
  return MPI_Irecv(bytes, count, MPI_BYTE, from, tag, all, request);
}
int imrecv(void* bytes, Count count, MPI_Message* message, MPI_Request* request) {
  return MPI_Imrecv(bytes, count, MPI_BYTE, message, request);
}
int get_count(const MPI_Status* status, Count* count) { return MPI_Get_count(status, MPI_BYTE, count); }
#else
using Count = MPI_Count;
int isend(const void* bytes, Count count, int to, int tag, MPI_Comm all, MPI_Request* request) {
  return MPI_Isend_c(bytes, count, MPI_BYTE, to, tag, all, request);
}
int irecv(void* bytes, Count count, int from, int tag, MPI_Comm all, MPI_Request* request) {
  return MPI_Irecv_c(bytes, count, MPI_BYTE, from, tag, all, request);
}
int imrecv(void* bytes, Count count, MPI_Message* message, MPI_Request* request) {
  return MPI_Imrecv_c(bytes, count, MPI_BYTE, message, request);
}
int get_count(const MPI_Status* status, Count* count) { return MPI_Get_count_c(status, MPI_BYTE, count); }
#endif

#ifdef TARANTELLA_OPENMPI
// Open MPI 5 fails all receives from anyone once a process has died, until it hears that this is known.
#pragma weak MPIX_Comm_failure_ack  // Open MPI 4 has none

bool acknowledge(int error, MPI_Comm all) {
  int kind = MPI_SUCCESS;
  if (MPIX_Comm_failure_ack == nullptr || MPI_Error_class(error, &kind) != MPI_SUCCESS) return false;
  if (kind != MPI_ERR_PROC_FAILED && kind != MPI_ERR_PROC_FAILED_PENDING) return false;
  return MPIX_Comm_failure_ack(all) == MPI_SUCCESS;
}
#else
bool acknowledge(int, MPI_Comm) { return false; }
#endif

// MPICH over libfabric lets MPI_Improbe take a message for which a receive is posted, so these have a communicator of
// their own.
MPI_Comm all, preposted;
bool ours = false;  // we have initialized MPI
std::vector<int> indices;
std::vector<MPI_Status> statuses;

MPI_Request* of_mpi(TntMpiRequest* request) { return reinterpret_cast<MPI_Request*>(request); }

int initialize(TntMpiJob* job) {
  int flag = 0;
  if (const int error = MPI_Finalized(&flag); error != MPI_SUCCESS) return error;
  job->at_end = flag != 0;
  if (job->at_end) return MPI_SUCCESS;
  if (const int error = MPI_Initialized(&flag); error != MPI_SUCCESS) return error;
  int level = MPI_THREAD_SINGLE;
  ours = flag == 0;
  if (const int error =
          ours ? MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) : MPI_Query_thread(&level);
      error != MPI_SUCCESS)
    return error;
  job->threads = level >= MPI_THREAD_SERIALIZED;
  return MPI_SUCCESS;
}

int count_neighbours(TntMpiJob* job) {
  MPI_Comm host;
  int size = 0;
  if (const int error = MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
      error != MPI_SUCCESS)
    return error;
  if (const int error = MPI_Comm_size(host, &size); error != MPI_SUCCESS) return error;
  job->alone = size == 1;
  return MPI_Comm_free(&host);
}

#ifdef TARANTELLA_OPENMPI
void limit_retries() {}
#else
/// Sets how often MPICH tries before the hint of ask_not_to_wait() counts: not by the environment, since it would count
/// for what MPICH sends itself while it starts.
void limit_retries() {
  constexpr int kRetries = 100;
  int level = 0, variable = 0, count = 0;
  MPI_T_cvar_handle handle{};
  if (MPI_T_init_thread(MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS ||
      MPI_T_cvar_get_index("MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY", &variable) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(variable, nullptr, &handle, &count) != MPI_SUCCESS)
    return;  // another MPI, or network
  (void)MPI_T_cvar_write(handle, &kRetries);
  (void)MPI_T_cvar_handle_free(&handle);
}
#endif

/// Has MPICH over libfabric return an error where it would otherwise try for ever to send to a process that has died.
/// MPIs that do not know the hint ignore it.
int ask_not_to_wait(MPI_Comm comm) {
  MPI_Info hints;
  if (const int error = MPI_Info_create(&hints); error != MPI_SUCCESS) return error;
  if (const int error = MPI_Info_set(hints, "eagain", "true"); error != MPI_SUCCESS) return error;
  if (const int error = MPI_Comm_set_info(comm, hints); error != MPI_SUCCESS) return error;
  return MPI_Info_free(&hints);
}

int start(TntMpiJob* job) {
  if (const int error = initialize(job); error != MPI_SUCCESS || job->at_end || !job->threads) return error;
  if (ours) {  // a program that has initialized MPI has chosen for itself
    for (const MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
      if (const int error = MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN); error != MPI_SUCCESS)
        return error;
    }
  }
  for (MPI_Comm* each : {&all, &preposted}) {
    if (const int error = MPI_Comm_dup(MPI_COMM_WORLD, each); error != MPI_SUCCESS) return error;
    if (const int error = MPI_Comm_set_errhandler(*each, MPI_ERRORS_RETURN); error != MPI_SUCCESS)
      return error;
    if (const int error = ask_not_to_wait(*each); error != MPI_SUCCESS) return error;
  }
  if (const int error = MPI_Comm_rank(all, &job->rank); error != MPI_SUCCESS) return error;
  if (const int error = MPI_Comm_size(all, &job->size); error != MPI_SUCCESS) return error;
  if (const int error = count_neighbours(job); error != MPI_SUCCESS) return error;
  limit_retries();
  return MPI_SUCCESS;
}

int isend(const void* bytes, uint64_t length, int32_t to, int32_t tag, TntMpiRequest* request) {
  return isend(bytes, static_cast<Count>(length), to, tag, all, of_mpi(request));
}

int isend_preposted(const void* bytes, uint64_t length, int32_t to, int32_t tag, TntMpiRequest* request) {
  return isend(bytes, static_cast<Count>(length), to, tag, preposted, of_mpi(request));
}

int irecv_preposted(void* bytes, uint64_t length, int32_t from, int32_t tag, TntMpiRequest* request) {
  return irecv(bytes, static_cast<Count>(length), from, tag, preposted, of_mpi(request));
}

int improbe(TntMpiArrival* arrival) {
  *arrival = {};
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  Count count = 0;
  if (const int error = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, all, &found, &message, &status);
      error != MPI_SUCCESS || found == 0)
    return error == MPI_SUCCESS || acknowledge(error, all) ? MPI_SUCCESS : error;
  if (const int error = get_count(&status, &count); error != MPI_SUCCESS) return error;
  arrival->found = true;
  arrival->from = status.MPI_SOURCE;
  arrival->tag = status.MPI_TAG;
  arrival->length = static_cast<uint64_t>(count);
  arrival->message = message;
  return MPI_SUCCESS;
}

int imrecv(void* bytes, uint64_t length, TntMpiMessage* message, TntMpiRequest* request) {
  return imrecv(bytes, static_cast<Count>(length), reinterpret_cast<MPI_Message*>(message), of_mpi(request));
}

int test(int32_t count, TntMpiRequest* requests, TntMpiEnd* ends, int32_t* ended) {
  *ended = 0;
  try {
    const size_t capacity = static_cast<size_t>(count);
    if (indices.size() < capacity) indices.resize(capacity);
    if (statuses.size() < capacity) statuses.resize(capacity);
  } catch (const std::bad_alloc&) {
    return MPI_ERR_NO_MEM;
  }
  int found = 0;
  const int error = MPI_Testsome(count, of_mpi(requests), &found, indices.data(), statuses.data());
  if (found == MPI_UNDEFINED || found < 0) return error;
  if (error != MPI_SUCCESS) {
    int kind = error;
    (void)MPI_Error_class(error, &kind);
    if (kind != MPI_ERR_IN_STATUS) return error;
  }
  for (size_t k = 0; k < static_cast<size_t>(found); ++k) {
    Count length = 0;
    (void)get_count(&statuses[k], &length);
    ends[k] = {indices[k], error == MPI_SUCCESS ? MPI_SUCCESS : statuses[k].MPI_ERROR,
               static_cast<uint64_t>(std::max(length, Count{0}))};
  }
  *ended = found;
  return MPI_SUCCESS;
}

int finalize() {
  for (MPI_Comm* each : {&all, &preposted}) {
    if (const int error = MPI_Comm_free(each); error != MPI_SUCCESS) return error;
  }
  if (!ours) return MPI_SUCCESS;
  return MPI_Finalize();
}

void write_to(char* text, size_t capacity, char* from) {
  std::replace(from, from + std::strlen(from), '\n', ' ');
  std::strncpy(text, from, capacity);
  text[capacity - 1] = 0;
}

void library(char* text, size_t capacity) {
  char name[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  if (MPI_Get_library_version(name, &length) != MPI_SUCCESS) name[0] = 0;
  write_to(text, capacity, name);
}

bool is_busy(int error) {
  char said[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  return error != MPI_SUCCESS && MPI_Error_string(error, said, &length) == MPI_SUCCESS &&
         std::strstr(said, "could not be issued (EAGAIN)") != nullptr;
}

void describe(int error, char* text, size_t capacity) {
  char said[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(error, said, &length) != MPI_SUCCESS) std::strcpy(said, "unknown error");
  write_to(text, capacity, said);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TntMpi* tarantella_mpi() {
  static const TntMpi table{kTntMpiVersion,
                            static_cast<uint64_t>(std::numeric_limits<Count>::max()),
                            reinterpret_cast<const void*>(&MPI_Init_thread),
                            library,
                            start,
                            isend,
                            isend_preposted,
                            irecv_preposted,
                            improbe,
                            imrecv,
                            test,
                            finalize,
                            is_busy,
                            describe};
  return &table;
}
