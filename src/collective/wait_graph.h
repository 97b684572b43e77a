#pragma once
// For which rank a rank waits, in memory that all ranks of the job see; see stall_detector.h.

#include <atomic>
#include <cstdint>

namespace tarantella::collective {

/// A wait for another rank.
struct alignas(8) WaitEdge {
  uint16_t rank = 0;       ///< 1 + the job's number of the awaited rank; 0: no wait
  bool gradients = false;  ///< of WaitKind::kGradients; false: of kExclusive
  uint8_t checks = 0;      ///< changes at each check that finds the rank still awaited
  uint32_t began = 0;      ///< differs from wait to wait
};

/// The waits of one rank. In shared memory, zeroed at first.
struct WaitEdges {
  std::atomic<WaitEdge> newest;  ///< the newest of any thread
  std::atomic<WaitEdge>
      creator_exclusive;  ///< of the rank's creator thread (see NodeGroup), of WaitKind::kExclusive
  std::atomic<WaitEdge> creator_gradients;  ///< for gradients that this thread submits
  std::atomic<bool>
      awaits_other_node;  ///< true: it sleeps until another node sends, or has waited for one for a second
};
static_assert(std::atomic<WaitEdge>::is_always_lock_free, "a WaitEdge must work between processes");

}  // namespace tarantella::collective
