#pragma once

#include <cstddef>

namespace tarantella {

/// Asks for the cache lines of `bytes` bytes, which this core is about to write: it takes them from other cores' caches
/// while it does something else. Does not wait, and changes nothing else.
inline void prefetch_for_write(const std::byte* begin, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t offset = 0; offset < bytes; offset += kLine) {
#if defined(__x86_64__)
    asm volatile(
        "prefetchw %0" ::"m"(begin[offset]));  // the builtin needs a flag that older machines have not
#else
    __builtin_prefetch(begin + offset, 1);
#endif
  }
}

}  // namespace tarantella
