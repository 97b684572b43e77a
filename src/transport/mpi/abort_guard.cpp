#include "transport/mpi/abort_guard.h"

#include <ucontext.h>
#include <unistd.h>

#include <csignal>

namespace tarantella::transport {
namespace {

struct sigaction before;

/// A signal that another process has sent is no abort of MPI, wherever it arrives.
void leave(int, siginfo_t* from, void* interrupted) {
  const bool is_ours = from->si_code == SI_TKILL && from->si_pid == getpid();
  if (is_ours && pthread_equal(abort_guard.thread.load(std::memory_order_relaxed), pthread_self()) != 0) {
    abort_guard.thread.store({}, std::memory_order_relaxed);
    (void)pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(interrupted)->uc_sigmask, nullptr);
    siglongjmp(abort_guard.way_out, 1);
  }
  (void)sigaction(SIGABRT, &before, nullptr);
  (void)raise(SIGABRT);  // comes when this handler returns
}

}  // namespace

AbortGuard abort_guard;

void catch_aborts() {
  struct sigaction now{};
  (void)sigaction(SIGABRT, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == leave) return;
  before = now;
  now = {};
  now.sa_sigaction = leave;
  now.sa_flags = SA_SIGINFO;
  (void)sigaction(SIGABRT, &now, nullptr);
}

}  // namespace tarantella::transport
