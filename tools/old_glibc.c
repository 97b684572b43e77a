// For wheels (tools/wheel.sh): what the libstdc++.a of a newer system calls in its libc, for systems whose libc is
// older. Linked into each library, and seen by that library alone.

#include <sys/random.h>

char __libc_single_threaded = 0;  // "there may be other threads"

unsigned int arc4random(void) {
  unsigned int number;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}
