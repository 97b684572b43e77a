#pragma once

#include <cstdint>
#include <string_view>

namespace tarantella {

/// FNV-1a, a value at a time: the same in every process.
constexpr uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3u; }

constexpr uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text) hash = mix(hash, static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace tarantella
