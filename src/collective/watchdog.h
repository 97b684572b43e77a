#pragma once
// Checks every rank from time to time, whether it is awaited or not: while one is busy for an hour, another may die.

#include <vector>

#include "base/clock.h"
#include "collective/active_timer.h"
#include "collective/node_group.h"

namespace tarantella::collective {

/// For one thread. The group must outlive it.
class Watchdog {
 public:
  explicit Watchdog(NodeGroup& group);

  /// Call it at least once a second; it checks once a second and does not block. Fails the group if a rank has died, or
  /// has shown no sign of life for the group's limit. A rank that has left does not fail the group: it may have
  /// finished.
  void check();

 private:
  struct Seen {
    uint32_t heartbeat = 0;
    Duration last_sign{};
    Duration gone_since = Duration::max();
  };

  NodeGroup& group_;
  ActiveTimer active_;
  Duration next_check_{};
  std::vector<Seen> seen_;
};

}  // namespace tarantella::collective
