// For wheels (tools/wheel.sh): the libc symbols that libstdc++.a of a newer system needs, for systems with an older
// libc. Linked into each library, and visible only to that library.

#include <sys/random.h>

char __libc_single_threaded = 0;  // "there may be other threads"

unsigned int arc4random(void) {
  unsigned int number;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}
