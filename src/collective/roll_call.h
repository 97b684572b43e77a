#pragma once
// Looks at every rank now and then, whoever is awaited: while one is busy for an hour, another may have died.

#include <vector>

#include "base/clock.h"
#include "collective/group.h"
#include "collective/looked_at.h"

namespace tarantella::collective {

/// One thread. The group must outlive it.
class RollCall {
 public:
  explicit RollCall(Group& group);

  /// To be called once a second or more often; looks once a second. A rank that has died, or shown no sign of life for
  /// the group's limit, fails the group. One that has left does not: it may have had nothing more to do.
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
