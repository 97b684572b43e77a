#pragma once
// The CPUs that a thread may run on. Unlike a plain cpu_set_t, not limited to 1,024.

#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarantella::runtime {

/// Plain data: it may lie in shared memory. Zeros are the empty mask.
struct CpuMask {
  static constexpr size_t kCpus = 16384;

  std::array<uint64_t, kCpus / 64> words;

  bool has(size_t cpu) const { return (words[cpu / 64] >> cpu % 64 & 1) != 0; }
  void add(size_t cpu) { words[cpu / 64] |= uint64_t{1} << cpu % 64; }
  bool intersects(const CpuMask& other) const {
    for (size_t i = 0; i < words.size(); ++i) {
      if ((words[i] & other.words[i]) != 0) return true;
    }
    return false;
  }

  /// In ascending order.
  std::vector<int> cpus() const {
    std::vector<int> found;
    for (size_t cpu = 0; cpu < kCpus; ++cpu) {
      if (has(cpu)) found.push_back(static_cast<int>(cpu));
    }
    return found;
  }

  /// Reads the mask of the calling thread. False, with errno, on a failure.
  bool read() {
    words = {};
    return ::sched_getaffinity(0, sizeof(words), reinterpret_cast<cpu_set_t*>(words.data())) == 0;
  }
  /// Binds the calling thread. False, with errno, on a failure.
  bool bind() const {
    return ::sched_setaffinity(0, sizeof(words), reinterpret_cast<const cpu_set_t*>(words.data())) == 0;
  }
};

}  // namespace tarantella::runtime
