#pragma once
// Notices a thread that does not return from the endpoint: MPI may block in a send to a machine that is gone.

#include <atomic>
#include <cstdint>

#include "base/wait_policy.h"
#include "collective/active_timer.h"

namespace tarantella::collective::internode {

/// Counts up when a thread enters the endpoint and when it leaves it, one thread at a time: odd while one is inside.
using EnterExitCounter = std::atomic<uint32_t>;

/// Marks the calling thread as inside the endpoint as long as it lives.
class InsideEndpoint {
 public:
  explicit InsideEndpoint(EnterExitCounter& enter_exits) : enter_exits_(enter_exits) {
    enter_exits_.fetch_add(1, std::memory_order_relaxed);
  }
  ~InsideEndpoint() { enter_exits_.fetch_add(1, std::memory_order_relaxed); }
  InsideEndpoint(const InsideEndpoint&) = delete;
  InsideEndpoint& operator=(const InsideEndpoint&) = delete;

 private:
  EnterExitCounter& enter_exits_;
};

/// For one thread, other than the one inside.
class ProgressWatchdog {
 public:
  explicit ProgressWatchdog(const EnterExitCounter& enter_exits) : enter_exits_(enter_exits) {}

  /// For how long a thread has been inside the endpoint without a return. Counts only while it is called again and
  /// again.
  Duration stuck() {
    const Duration now = active_.update();
    const uint32_t enter_exits = enter_exits_.load(std::memory_order_relaxed);
    if (enter_exits % 2 == 0 || enter_exits != seen_) since_ = now;
    seen_ = enter_exits;
    return now - since_;
  }

 private:
  const EnterExitCounter& enter_exits_;
  ActiveTimer active_{WaitPolicy::kHeartbeat};
  uint32_t seen_ = 0;
  Duration since_{};
};

}  // namespace tarantella::collective::internode
