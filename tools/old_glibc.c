// For wheels (tools/wheel.sh): the libc symbols that libstdc++.a of a newer system needs, for systems with an older
// libc. Linked into each library, and visible only to that library.

#include <pthread.h>
#include <sys/random.h>
#include <time.h>

char __libc_single_threaded = 0;  // "there may be other threads"

unsigned int arc4random(void) {
  unsigned int number;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

// Without it a wait follows changes of the machine's time.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec now, end;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &end);
  const long long second = 1000000000;
  const long long left = (until->tv_sec - now.tv_sec) * second + (until->tv_nsec - now.tv_nsec);
  const long long at = end.tv_nsec + (left > 0 ? left : 0);
  end.tv_sec += at / second;
  end.tv_nsec = at % second;
  return pthread_cond_timedwait(condition, mutex, &end);
}
