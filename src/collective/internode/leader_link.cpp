#include "collective/internode/leader_link.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "collective/active_timer.h"

namespace tarantella::collective::internode {

LeaderLink::LeaderLink(std::shared_ptr<NodeGroup> group, std::unique_ptr<transport::Endpoint> endpoint,
                       NodeMap nodes, std::shared_ptr<RemoteNotifications> notifications,
                       LeaderLinkOptions options)
    : group_(std::move(group)),
      nodes_(std::move(nodes)),
      endpoint_(std::move(endpoint)),
      status_(*group_, nodes_, *endpoint_, std::move(notifications), options),
      progress_(*group_, *endpoint_, status_) {}

Status LeaderLink::sleep_until_ended(std::span<const transport::TransferPtr> transfers,
                                     const std::string& what, bool peer_may_be_blocked) {
  publish_wait_edge(group_->is_creator_thread() ? transfers : decltype(transfers)(),
                    what);  // another thread may go on for others
  begin_operation();
  std::atomic<bool>& awaits_other_node =
      group_->rank_table().waits(group_->job_rank(group_->rank())).awaits_other_node;
  awaits_other_node.store(true);
  ActiveTimer active(4 * WaitPolicy::kCheckInterval);
  ProgressWatchdog watchdog = progress_.watchdog();
  Duration next_warning = peer_may_be_blocked ? kForever : group_->options().warn_every;
  Duration departed_since = Duration::max();
  auto next = [&, k = size_t{0}]() mutable {
    while (k < transfers.size() && transfers[k]->ended() && transfers[k]->status().ok()) ++k;
    return k;
  };
  if (next() < transfers.size()) group_->wake_progress_thread(group_->rank());
  Status status;
  for (size_t k = next(); k < transfers.size() && status.ok(); k = next()) {
    const transport::Transfer& awaited = *transfers[k];
    if (awaited.ended()) {
      if (awaited.status().ok()) continue;  // since next()
      status = group_->failure();
      if (status.ok()) status = is_leaving() ? awaited.status() : group_->fail_in(what, awaited.status());
      break;
    }
    progress_.sleep_until_ended(awaited);
    if (awaited.ended() && awaited.status().ok()) continue;
    progress_.check(watchdog);
    status = group_->failure();
    const Duration now = active.update();
    const auto node = static_cast<size_t>(awaited.peer);
    const std::string place = text("rank ", group_->job_rank(group_->rank()), " waits in ", what, ": ");
    if (status.ok() && has_departed(node)) {
      departed_since = std::min(departed_since, now);
      if (now - departed_since >= group_->options().failure_delay)
        status = group_->fail({Code::kPeerLost, text(place, nodes_.describe(node),
                                                     " ended; make the same calls with the same number of "
                                                     "batches on every rank")});
    }
    if (status.ok() &&
        group_->check_stall_timeout(
            now, peer_may_be_blocked ? NodeGroup::kStallDelayIfPeerWaits : NodeGroup::kStallDelayIfRemote))
      status = group_->fail_stalled(place, nodes_.describe(node), now);
    if (now >= next_warning) {
      next_warning = now + group_->options().warn_every;
      log_warning(text(place, nodes_.describe(node), " did not arrive within ",
                       static_cast<int>(in_seconds(now)), " s"));
    }
  }
  if (!status.ok()) {
    for (const transport::TransferPtr& each : std::views::reverse(transfers)) endpoint_->cancel(each);
  }
  awaits_other_node.store(false);
  end_operation();
  clear_wait_edge();
  return status;
}

}  // namespace tarantella::collective::internode
