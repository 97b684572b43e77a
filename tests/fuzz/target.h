#pragma once
// What a fuzz target implements, and how it reports a wrong answer.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// Feeds the input to the code under test. Returns 0; aborts if the answer is wrong.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tarantella::fuzz {

/// Aborts with `what` unless `holds`.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "wrong answer: %s\n", what);
  std::abort();
}

}  // namespace tarantella::fuzz
