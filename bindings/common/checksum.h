#pragma once
// A checksum of bytes, at the speed of reading memory.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tarantella {

/// The checksum of all bytes added so far. Each call of add() pads its last block of 32 bytes with zeros. Not
/// thread-safe.
class Checksum {
 public:
  void add(const std::byte* data, size_t bytes) {
    for (; bytes >= kBlock; data += kBlock, bytes -= kBlock) mix(data, kBlock);
    mix(data, bytes);
  }
  uint64_t value() const {
    uint64_t all = 0;
    for (const uint64_t lane : lanes_) all = (std::rotl(all, 29) ^ lane) * kFactor;
    return all ^ (all >> 32);
  }

 private:
  static constexpr uint64_t kFactor =
      0x9E3779B97F4A7C15;  // odd, so that every step keeps a difference in a lane
  static constexpr size_t kBlock = 4 * sizeof(uint64_t);

  void mix(const std::byte* data, size_t bytes) {
    std::array<uint64_t, 4> words{};
    std::memcpy(words.data(), data, bytes);
    for (size_t i = 0; i < 4; ++i) lanes_[i] = std::rotl((lanes_[i] ^ words[i]) * kFactor, 31);
  }

  std::array<uint64_t, 4> lanes_{1, 2, 3, 4};  // since each step waits for the one before it in its lane
};

}  // namespace tarantella
