// Keeps a core awake for bench/silent.py: a thread of idle priority that only pauses. Every other thread goes first.

#include <sched.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <thread>

namespace {

std::atomic<bool> on{false};
std::thread pauser;

/// Gives the calling thread idle priority. Returns 0 or an error number.
int make_idle() {
  const sched_param none{};
  if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) return errno;
  return sched_getscheduler(0) == SCHED_IDLE ? 0 : EPERM;
}

void pause_until_off() {
  while (on.load(std::memory_order_relaxed)) {
    for (int i = 0; i < 64; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  }
}

}  // namespace

/// Ends the thread, and waits for that. Not thread-safe, like the start.
extern "C" void keep_awake_stop() {
  on = false;
  if (pauser.joinable()) pauser.join();
}

/// Starts the thread on the cores of the caller. Returns 0 or an error number: without idle priority nothing runs.
extern "C" int keep_awake_start() {
  if (on.exchange(true)) return EBUSY;
  std::promise<int> policy;
  auto error = policy.get_future();
  pauser = std::thread([&policy] {
    const int failed = make_idle();
    policy.set_value(failed);
    if (failed == 0) pause_until_off();
  });
  const int failed = error.get();
  if (failed != 0) keep_awake_stop();
  return failed;
}
