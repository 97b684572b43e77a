#pragma once
// MPICH aborts the process where a transfer fails that is under way, as it does when a machine dies: an error handler
// is not asked. With MPIR_CVAR_COREDUMP_ON_ABORT it does so by abort(), whose signal may be left by a jump (ISO C
// 7.22.4.1), back to where MPI was called.

#include <pthread.h>

#include <atomic>
#include <csetjmp>

namespace tarantella::transport {

/// What call_mpi() returns where MPI has aborted. No MPI has an error below 0.
constexpr int kAborted = -1;

/// The call of MPI that an abort may be left from; see call_mpi().
struct AbortGuard {
  static_assert(std::atomic<pthread_t>::is_always_lock_free);

  std::atomic<pthread_t> thread{};  ///< that is in the call; 0 without one
  sigjmp_buf way_out;
};
extern AbortGuard abort_guard;

/// Handles SIGABRT from here on. An abort outside of call_mpi() ends as it would have before. Not for use beside
/// threads that change how signals are handled.
void catch_aborts();

/// Calls MPI. Returns what `call` does, or kAborted; MPI must not be called again then. One thread at a time. `call`
/// must need no destructors.
template <typename Call>
int call_mpi(const Call& call) {
  if (sigsetjmp(abort_guard.way_out, 0) != 0) return kAborted;
  abort_guard.thread.store(pthread_self(), std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const int error = call();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  abort_guard.thread.store({}, std::memory_order_relaxed);
  return error;
}

}  // namespace tarantella::transport
