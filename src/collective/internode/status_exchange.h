#pragma once
// The status that leaders exchange about their nodes. Each tells the others once a second that its node runs, and at
// once when the node's communication has failed or when it leaves. What it receives becomes a failure of its own node,
// so a failure on any node ends all waits. The messages also carry notifications, and the call in which a leader waits.

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/wait_policy.h"
#include "collective/internode/node_map.h"
#include "collective/internode/node_status.h"
#include "collective/internode/remote_notifications.h"
#include "collective/node_group.h"
#include "transport/endpoint.h"

namespace tarantella::collective::internode {

struct LeaderLinkOptions {
  Duration status_every = WaitPolicy::kHeartbeat;
  /// A node from which nothing has come for this long, while this one runs, is named in a WARNING. The user is to read
  /// it within ten seconds. That leaves one second for the interval between statuses, and one until the next poll().
  Duration missed = 8s;
  /// After this long it is lost.
  Duration stuck_timeout = 300s;
  /// The same after shorten_loss_timeout().
  Duration stuck_timeout_at_end = 2500ms;
  /// If this node does not poll for so long, it was stopped, and the others may have been, too: silence counts anew.
  Duration stopped = 3s;
};

/// Thread-safe, except for the functions of the thread that makes progress on the endpoint. None blocks. `group`,
/// `nodes` and `endpoint` must outlive it. Times are those of TransferProgress::now().
class StatusExchange {
 public:
  StatusExchange(NodeGroup& group, const NodeMap& nodes, transport::Endpoint& endpoint,
                 std::shared_ptr<RemoteNotifications> notifications, LeaderLinkOptions options);

  /// Receives and sends what is due. The thread that makes progress. `one_operation_pending`: nothing is awaited
  /// but the transfers of publish_wait_edge().
  void poll(Duration now, bool one_operation_pending);
  /// After leave(): whether all other nodes know, or have left. The thread that makes progress.
  bool all_know() const;

  /// Makes this node's next status its last one.
  void leave() { leaving_.store(true); }
  bool is_leaving() const { return leaving_.load(); }
  /// Whether `node` has told that it has left the job, or its connection has failed.
  bool has_departed(size_t node) const { return peers_[node].departed.load(); }
  /// From here on a silent node is lost after stuck_timeout_at_end.
  void shorten_loss_timeout() { loss_timeout_is_short_.store(true); }

  /// Between the two, the other nodes are told that this rank's creator thread waits in `what` for `transfers`, in
  /// which nullptr stands for none, and starts nothing else. They must stay valid.
  void publish_wait_edge(std::span<const transport::TransferPtr> transfers, const std::string& what);
  void clear_wait_edge();
  /// The blocking call or exclusive plan in which the creator thread of `node` has waited for this node since at least
  /// `since`, or "". Used to detect a deadlock between that wait there and gradients here.
  std::string exclusive_wait_of(size_t node, Duration since);

  /// Tells the other leaders what this one has notified of, and how many calls of the job it has made.
  void notify(const Notification& notification);
  void set_calls(uint32_t calls);

 private:
  struct Peer {
    std::shared_ptr<NodeStatus> sent = std::make_shared<NodeStatus>();
    std::shared_ptr<NodeStatus> received = std::make_shared<NodeStatus>();
    transport::TransferPtr sending;
    transport::TransferPtr receiving;
    std::deque<Notification> notifications;  ///< not sent yet; guarded by mutex_
    Duration sent_at = -kForever;
    Duration heard_at{};
    size_t messages = 0;   ///< of any kind that have come
    uint32_t wait_id = 0;  ///< as the last status said; with what follows guarded by mutex_
    std::string wait_name;
    Duration wait_since{}, wait_heard_at{};
    bool knows_failure = false;
    bool knows_stacks = false;
    bool knows_departure = false;
    std::string host;
    bool joined = false;     ///< has sent a status
    bool is_missed = false;  ///< there was a WARNING since it was last heard
    std::atomic<bool> departed{false};
  };

  void receive(size_t node, Duration now);
  void process_status(size_t node, Duration now);
  void send(size_t node, Duration now, bool one_operation_pending);
  /// The id of the wait of publish_wait_edge() if it is for `node`, else 0.
  uint32_t wait_id_for(size_t node) const;
  void check_silence(size_t node, Duration silent);
  /// The node's host and ranks, for messages.
  std::string describe(size_t node) const;

  NodeGroup& group_;
  const NodeMap& nodes_;
  const size_t own_node_;
  transport::Endpoint& endpoint_;
  const std::shared_ptr<RemoteNotifications> notifications_;
  const LeaderLinkOptions options_;
  Clock::time_point polled_at_ = Clock::now();
  std::vector<Peer> peers_;  ///< by node; of the thread that makes progress, except where it says otherwise
  std::mutex mutex_;
  uint32_t calls_ = 0;  ///< guarded by mutex_, as what follows
  std::span<const transport::TransferPtr> awaited_;
  std::string awaited_name_;
  uint32_t awaited_id_ = 0;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> loss_timeout_is_short_{false};
};

}  // namespace tarantella::collective::internode
