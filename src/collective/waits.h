#pragma once
// For whom a rank waits, where all ranks of the job see it; see watch.h.

#include <atomic>
#include <cstdint>

namespace tarantella::collective {

/// A wait for another rank.
struct alignas(8) Wait {
  uint16_t rank = 0;       ///< the job's number of that rank, and 1; 0: no wait
  bool gradients = false;  ///< else it waits in a blocking call
  uint8_t looks = 0;       ///< changes each time that it is found in vain
  uint32_t began = 0;      ///< tells one wait from another
};

/// Those of one rank. Lies in shared memory, zeroed at first.
struct Waits {
  std::atomic<Wait> newest;             ///< of any thread
  std::atomic<Wait> callers_call;       ///< of the thread that makes the rank's calls: in one of them
  std::atomic<Wait> callers_gradients;  ///< and for gradients that it hands in
};
static_assert(std::atomic<Wait>::is_always_lock_free, "a Wait must work between processes");

}  // namespace tarantella::collective
