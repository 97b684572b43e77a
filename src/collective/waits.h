#pragma once
// For which rank a rank waits, in memory that all ranks of the job see; see watch.h.

#include <atomic>
#include <cstdint>

namespace tarantella::collective {

/// A wait for another rank.
struct alignas(8) Wait {
  uint16_t rank = 0;       ///< 1 + the job's number of the awaited rank; 0: no wait
  bool gradients = false;  ///< false: a wait in a blocking call
  uint8_t looks = 0;       ///< changes at each check that finds the rank still awaited
  uint32_t began = 0;      ///< differs from wait to wait
};

/// The waits of one rank. In shared memory, zeroed at first.
struct Waits {
  std::atomic<Wait> newest;             ///< the newest of any thread
  std::atomic<Wait> callers_call;       ///< that of the rank's caller (see Group) in a blocking call
  std::atomic<Wait> callers_gradients;  ///< that for gradients which the rank's caller submits
  std::atomic<bool> far;                ///< whether it has waited for another node for long
};
static_assert(std::atomic<Wait>::is_always_lock_free, "a Wait must work between processes");

}  // namespace tarantella::collective
