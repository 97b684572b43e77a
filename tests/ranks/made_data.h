#pragma once
// Data of ranks. Raw pointers, since the tests are not optimized and make hundreds of megabytes.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarantella {

inline uint32_t next_random(uint32_t& random) { return random = random * 1664525 + 1013904223; }

/// `bytes` bytes of `rank`, which are finite numbers in every dtype.
inline std::vector<std::byte> made_bytes(size_t rank, size_t bytes) {
  std::vector<std::byte> data(bytes);
  auto random = static_cast<uint32_t>(rank * 7919 + 1);
  const std::byte* const end = data.data() + bytes;
  for (std::byte* at = data.data(); at != end; ++at) *at = static_cast<std::byte>(next_random(random) >> 26);
  return data;
}

/// Numbers from -1 to 1. Not all sums of these are exact, so their order shows.
inline std::vector<float> made_floats(uint32_t seed, size_t count) {
  std::vector<float> data(count);
  uint32_t random = seed * 2654435761u + 1;
  const float* const end = data.data() + count;
  for (float* at = data.data(); at != end; ++at)
    *at = static_cast<float>(next_random(random) >> 8) / static_cast<float>(1 << 23) - 1;
  return data;
}

}  // namespace tarantella
