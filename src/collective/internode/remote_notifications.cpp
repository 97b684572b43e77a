#include "collective/internode/remote_notifications.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "collective/active_timer.h"

namespace tarantella::collective::internode {

Result<std::unique_ptr<RemoteNotifications>> RemoteNotifications::create(NodeGroup& group,
                                                                         const NodeMap& nodes) {
  auto region = group.map(sizeof(NotificationBoard::Row) * nodes.count(), "the notifications of other nodes");
  if (!region.ok()) return region.status();
  return std::unique_ptr<RemoteNotifications>(
      new RemoteNotifications(group, nodes, std::move(region).value()));
}

RemoteNotifications::RemoteNotifications(NodeGroup& group, NodeMap nodes, transport::Region region)
    : group_(group),
      nodes_(std::move(nodes)),
      region_(std::move(region)),
      board_(group.memory(), reinterpret_cast<NotificationBoard::Row*>(region_.bytes.data())) {}

Notification RemoteNotifications::make(const std::string& name, uint32_t value, uint32_t calls) {
  return {hash_of(name), value, calls};
}

Result<std::optional<uint32_t>> RemoteNotifications::find(int from, const std::string& name) {
  TNT_RETURN_IF_ERROR(group_.failure());
  return board_.find(nodes_.node_of(from), name);
}

Result<uint32_t> RemoteNotifications::await(int from, const std::string& name, uint32_t calls) {
  TNT_RETURN_IF_ERROR(group_.failure());
  const size_t node = nodes_.node_of(from);
  ActiveTimer active(4 * NodeGroup::kCheckInterval);
  Duration next_warning = group_.options().warn_every;
  Duration departed_since = Duration::max();
  uint32_t heartbeat = group_.heartbeat(0);
  Duration last_sign{};
  const std::string place = text("rank ", group_.job_rank(group_.rank()), " waits in ", name, ": rank ");
  const auto check = [&]() -> Status {
    const Duration now = active.update();
    if (now >= next_warning) {
      next_warning = now + group_.options().warn_every;
      log_warning(text(place, from, " did not arrive within ", static_cast<int>(in_seconds(now)), " s"));
    }
    if (group_.check_stall_timeout(now, NodeGroup::kStallDelayIfRemote))
      return group_.fail_stalled(place, std::to_string(from), now);
    // without this node's leader, perhaps this rank, nothing is heard of other nodes
    if (const uint32_t newest = group_.heartbeat(0); std::exchange(heartbeat, newest) != newest)
      last_sign = now;
    if (now - last_sign > group_.stuck_timeout())
      return group_.fail(
          {Code::kTimeout, text(place, group_.job_rank(0), " is stopped or stuck: no sign of life for ",
                                static_cast<int>(in_seconds(now - last_sign)), " s (limit: TNT_TIMEOUT)")});
    if (group_.state_of(0) == RankState::kDeparted) departed_since = std::min(departed_since, now);
    if (now - departed_since >= group_.options().failure_delay)
      return group_.fail({Code::kPeerLost, text(place, group_.job_rank(0),
                                                " has ended; make the same calls with the same number of "
                                                "batches on every rank")});
    return group_.failure();
  };
  return board_.await(node, from, name, calls, [&] { return board_.has_departed(node); }, check);
}

}  // namespace tarantella::collective::internode
