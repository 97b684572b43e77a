#include "collective/roll_call.h"

#include <algorithm>

namespace tarantella::collective {
namespace {

constexpr Duration kEvery = 1s;

}  // namespace

RollCall::RollCall(Group& group)
    : group_(group), looked_at_(kEvery), seen_(static_cast<size_t>(group.size())) {}

void RollCall::look() {
  const Duration now = looked_at_.look();
  if (now < next_look_ || !group_.failure().ok()) return;
  next_look_ = now + kEvery;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank()) continue;
    Seen& seen = seen_[static_cast<size_t>(rank)];
    const auto presence = group_.presence(rank);
    if (presence == Presence::kLeft) continue;
    if (presence == Presence::kGone) {
      seen.gone_since = std::min(seen.gone_since, now);
      // a rank that waits for it notices too, and its error names the call
      if (now - seen.gone_since < group_.options().grace + kEvery) continue;
      (void)group_.fail({Code::kPeerLost, text("rank ", group_.job_rank(rank),
                                               " has died; its output or its launcher says why")});
      return;
    }
    const uint32_t heartbeat = group_.heartbeat(rank);
    if (heartbeat != seen.heartbeat) seen = {heartbeat, now};
    if (now - seen.last_sign <= group_.limit() + kEvery) continue;
    (void)group_.fail({Code::kTimeout,
                       text("rank ", group_.job_rank(rank), " is stopped or stuck: no sign of life for ",
                            static_cast<int>(in_seconds(now - seen.last_sign)), " s (limit: TNT_TIMEOUT)")});
    return;
  }
}

}  // namespace tarantella::collective
