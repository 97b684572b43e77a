#pragma once
// The notifications of the leaders of other nodes (see NodeGroup::notify()), in the memory of this node: its leader
// writes what it hears, and all its ranks read it.

#include <memory>
#include <optional>
#include <string>

#include "collective/internode/node_map.h"
#include "collective/node_group.h"

namespace tarantella::collective::internode {

/// Calls are those of the job, which all ranks count alike.
struct Notification {
  uint64_t key;
  uint32_t value;
  uint32_t calls;  ///< how many calls the rank had made
};

/// One rank's view.
class RemoteNotifications {
 public:
  /// Collective over the ranks of the node. Errors: those of NodeGroup::map().
  static Result<std::unique_ptr<RemoteNotifications>> create(NodeGroup& group, const NodeMap& nodes);

  static Notification make(const std::string& name, uint32_t value, uint32_t calls);

  /// What the leader of `node` has said. For one thread at a time of this node's leader.
  void heard(size_t node, const Notification& notification) {
    board_.notify(node, notification.key, notification.value, notification.calls);
  }
  /// The leader of `node` has made so many calls; all its notifications before the last one were heard.
  void heard_calls(size_t node, uint32_t calls) { board_.set_sequence(node, calls); }
  void heard_departure(size_t node) { board_.set_departed(node); }

  /// As NodeGroup::wait_notification(), where this rank has made `calls` calls; `from` is the leader of another node.
  /// For one thread at a time.
  Result<uint32_t> await(int from, const std::string& name, uint32_t calls);
  /// As NodeGroup::find_notification(); `from` is the leader of another node.
  Result<std::optional<uint32_t>> find(int from, const std::string& name);

 private:
  RemoteNotifications(NodeGroup& group, NodeMap nodes, transport::Region region);

  NodeGroup& group_;
  const NodeMap nodes_;
  const transport::Region region_;
  NotificationBoard board_;  ///< by node
};

}  // namespace tarantella::collective::internode
