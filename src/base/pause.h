#pragma once

namespace tarantella {

/// Tells the core that it executes a waiting loop: it spends less power, and leaves more to a sibling thread.
inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // "yield" is no pause on most of them
#endif
}

}  // namespace tarantella
