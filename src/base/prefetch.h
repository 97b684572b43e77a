#pragma once
// Asks for cache lines before they are needed, so that a core gets them while it does something else. Does not wait.

#include <cstddef>

#include "base/cache_line.h"

namespace tarantella {

/// For `bytes` bytes that this core is about to read.
inline void prefetch(const std::byte* begin, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += kCacheLine) __builtin_prefetch(begin + offset);
}

/// For `bytes` bytes that this core is about to write: takes their lines from other cores' caches.
inline void prefetch_for_write(const std::byte* begin, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += kCacheLine) {
#if defined(__x86_64__)
    // the builtin makes a read of it, unless told that the machine is a newer one
    asm volatile("prefetchw %0" ::"m"(begin[offset]));
#else
    __builtin_prefetch(begin + offset, 1);
#endif
  }
}

}  // namespace tarantella
