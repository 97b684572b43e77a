#pragma once
// Data of ranks. The tests make hundreds of megabytes and are not optimized, so these loops always are, without checks.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tarantella {

#define TNT_FAST __attribute__((optimize("O2"), no_sanitize("address", "thread", "undefined")))

TNT_FAST inline uint32_t next_random(uint32_t& random) { return random = random * 1664525 + 1013904223; }

TNT_FAST inline void make_bytes(uint32_t random, std::byte* at, const std::byte* end) {
  for (; at != end; ++at) *at = static_cast<std::byte>(next_random(random) >> 26);
}

TNT_FAST inline void make_floats(uint32_t random, float* at, const float* end) {
  for (; at != end; ++at)
    *at = static_cast<float>(next_random(random) >> 8) / static_cast<float>(1 << 23) - 1;
}

TNT_FAST inline void add_floats(float* sums, const float* addends, size_t count) {
  for (size_t i = 0; i < count; ++i) sums[i] += addends[i];
}

#undef TNT_FAST

/// `bytes` bytes of `rank`, which are finite numbers in every dtype.
inline std::vector<std::byte> made_bytes(size_t rank, size_t bytes) {
  std::vector<std::byte> data(bytes);
  make_bytes(static_cast<uint32_t>(rank * 7919 + 1), data.data(), data.data() + bytes);
  return data;
}

/// Numbers from -1 to 1. Not all sums of these are exact, so their order shows.
inline std::vector<float> made_floats(uint32_t seed, size_t count) {
  std::vector<float> data(count);
  make_floats(seed * 2654435761u + 1, data.data(), data.data() + count);
  return data;
}

/// Adds `addends` to `sums`, which has as many values, or none: then they become the sums.
inline void add(std::vector<float>& sums, std::vector<float> addends) {
  if (sums.empty()) {
    sums = std::move(addends);
  } else {
    add_floats(sums.data(), addends.data(), sums.size());
  }
}

}  // namespace tarantella
