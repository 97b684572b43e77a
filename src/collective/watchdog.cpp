#include "collective/watchdog.h"

#include <algorithm>

namespace tarantella::collective {
namespace {

constexpr Duration kEvery = WaitPolicy::kHeartbeat;

}  // namespace

Watchdog::Watchdog(NodeGroup& group)
    : group_(group), active_(kEvery), seen_(static_cast<size_t>(group.size())) {}

void Watchdog::check() {
  const Duration now = active_.update();
  if (now < next_check_ || !group_.failure().ok()) return;
  next_check_ = now + kEvery;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank()) continue;
    Seen& seen = seen_[static_cast<size_t>(rank)];
    const auto presence = group_.state_of(rank);
    if (presence == RankState::kDeparted) continue;
    if (presence == RankState::kDead) {
      seen.gone_since = std::min(seen.gone_since, now);
      // a rank that waits for it notices too, and its error names the call
      if (now - seen.gone_since < group_.options().failure_delay + kEvery) continue;
      (void)group_.fail({Code::kPeerLost, text("rank ", group_.job_rank(rank),
                                               " has died; its output or its launcher says why")});
      return;
    }
    const uint32_t heartbeat = group_.heartbeat(rank);
    if (heartbeat != seen.heartbeat) seen = {heartbeat, now};
    if (now - seen.last_sign <= group_.stuck_timeout() + kEvery) continue;
    (void)group_.fail({Code::kTimeout,
                       text("rank ", group_.job_rank(rank), " is stopped or stuck: no sign of life for ",
                            static_cast<int>(in_seconds(now - seen.last_sign)), " s (limit: TNT_TIMEOUT)")});
    return;
  }
}

}  // namespace tarantella::collective
