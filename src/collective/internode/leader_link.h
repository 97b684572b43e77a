#pragma once
// Joins the group of a node to those of the other nodes. The leader of each node, its lowest rank, has a link, which
// owns the endpoint to the other leaders: messages, blocking waits for them, and the end of both. StatusExchange
// notices nodes that fail; TransferProgress decides which thread moves bytes.

#include <memory>
#include <span>
#include <string>

#include "collective/internode/message_tag.h"
#include "collective/internode/node_map.h"
#include "collective/internode/remote_notifications.h"
#include "collective/internode/status_exchange.h"
#include "collective/internode/transfer_progress.h"
#include "collective/node_group.h"
#include "transport/endpoint.h"

namespace tarantella::collective::internode {

/// Thread-safe, except where a thread is named.
class LeaderLink {
 public:
  /// `notifications` takes those of other leaders. `group` is that of this rank's node, in which it is rank 0; rank k
  /// of the endpoint is the leader of node k.
  LeaderLink(std::shared_ptr<NodeGroup> group, std::unique_ptr<transport::Endpoint> endpoint, NodeMap nodes,
             std::shared_ptr<RemoteNotifications> notifications, LeaderLinkOptions options);
  LeaderLink(const LeaderLink&) = delete;
  LeaderLink& operator=(const LeaderLink&) = delete;

  const NodeMap& nodes() const { return nodes_; }
  /// The number of this node.
  size_t node_index() const { return nodes_.node_of(group_->job_rank(0)); }
  NodeGroup& group() { return *group_; }

  /// As in transport::Endpoint, to and from the leader of `node`, with a MessageTag or a tag from kFirstPlanTag on.
  template <typename Tag>
  transport::TransferPtr send(size_t node, Tag tag, std::span<const std::byte> bytes,
                              std::shared_ptr<const void> owner) {
    return endpoint_->send(static_cast<int>(node), static_cast<transport::Tag>(tag), bytes, std::move(owner));
  }
  template <typename Tag>
  transport::TransferPtr receive(size_t node, Tag tag, std::span<std::byte> bytes,
                                 std::shared_ptr<const void> owner) {
    return endpoint_->receive(static_cast<int>(node), static_cast<transport::Tag>(tag), bytes,
                              std::move(owner));
  }
  /// See Endpoint::cancel().
  void cancel(const transport::TransferPtr& transfer) { endpoint_->cancel(transfer); }
  /// Blocks until all of `transfers` have ended well. Otherwise cancels them, fails the group and returns its first
  /// cause. `describe()` names the caller's operation in errors; it is called only if this thread leaves the bytes to
  /// another. `peer_may_be_blocked`: an awaited node may itself wait for another, so leave it to others to name the
  /// node that is late. Ends when a node is lost, has left or has failed, or if the progress thread is stuck in the
  /// endpoint; a node that runs is awaited without limit.
  template <typename Describe>
  Status await(std::span<const transport::TransferPtr> transfers, Describe describe,
               bool peer_may_be_blocked = false) {
    if (progress_.progress_until_ended(transfers)) return {};
    return sleep_until_ended(transfers, describe(), peer_may_be_blocked);
  }
  /// Tells the other nodes that this one ends, and closes the endpoint. Blocks for at most a second, until the progress
  /// thread has done so. Calls that wait end with the group's failure. Idempotent; not on the progress thread.
  void leave() { progress_.shut_down(); }

  // Of TransferProgress.
  Duration progress() { return progress_.progress(); }
  bool try_progress_if_one_pending() { return progress_.try_progress_if_one_pending(); }
  void begin_operation() { progress_.begin_operation(); }
  void end_operation() { progress_.end_operation(); }
  bool has_pending_operations() const { return progress_.has_pending_operations(); }
  Duration now() const { return progress_.now(); }

  // Of StatusExchange.
  bool is_leaving() const { return status_.is_leaving(); }
  bool has_departed(size_t node) const { return status_.has_departed(node); }
  void shorten_loss_timeout() { status_.shorten_loss_timeout(); }
  void publish_wait_edge(std::span<const transport::TransferPtr> transfers, const std::string& what) {
    status_.publish_wait_edge(transfers, what);
  }
  void clear_wait_edge() { status_.clear_wait_edge(); }
  std::string exclusive_wait_of(size_t node, Duration since) {
    return status_.exclusive_wait_of(node, since);
  }
  void notify(const Notification& notification) { status_.notify(notification); }
  void set_calls(uint32_t calls) { status_.set_calls(calls); }

 private:
  Status sleep_until_ended(std::span<const transport::TransferPtr> transfers, const std::string& what,
                           bool peer_may_be_blocked);

  const std::shared_ptr<NodeGroup> group_;
  const NodeMap nodes_;
  const std::unique_ptr<transport::Endpoint> endpoint_;
  StatusExchange status_;
  TransferProgress progress_;
};

}  // namespace tarantella::collective::internode
