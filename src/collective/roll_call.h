#pragma once
// Checks every rank from time to time, whether it is awaited or not: while one is busy for an hour, another may die.

#include <vector>

#include "base/clock.h"
#include "collective/group.h"
#include "collective/looked_at.h"

namespace tarantella::collective {

/// For one thread. The group must outlive it.
class RollCall {
 public:
  explicit RollCall(Group& group);

  /// Call it at least once a second; it checks once a second and does not block. Fails the group if a rank has died, or
  /// has shown no sign of life for the group's limit. A rank that has left does not fail the group: it may have
  /// finished.
  void look();

 private:
  struct Seen {
    uint32_t heartbeat = 0;
    Duration last_sign{};
    Duration gone_since = Duration::max();
  };

  Group& group_;
  LookedAt looked_at_;
  Duration next_look_{};
  std::vector<Seen> seen_;
};

}  // namespace tarantella::collective
