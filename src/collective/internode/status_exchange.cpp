#include "collective/internode/status_exchange.h"

#include <algorithm>
#include <utility>

#include "base/fixed_text.h"
#include "base/host.h"
#include "base/log.h"
#include "collective/internode/message_tag.h"

namespace tarantella::collective::internode {
namespace {

constexpr auto kTag = static_cast<transport::Tag>(MessageTag::kStatus);

int64_t seconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

StatusExchange::StatusExchange(NodeGroup& group, const NodeMap& nodes, transport::Endpoint& endpoint,
                               std::shared_ptr<RemoteNotifications> notifications, LeaderLinkOptions options)
    : group_(group),
      nodes_(nodes),
      own_node_(nodes.node_of(group.job_rank(0))),
      endpoint_(endpoint),
      notifications_(std::move(notifications)),
      options_(options),
      peers_(nodes.count()) {}

void StatusExchange::poll(Duration now, bool one_operation_pending) {
  const auto time = Clock::now();
  const bool was_stopped = time - std::exchange(polled_at_, time) > options_.stopped;
  for (size_t node = 0; node < peers_.size(); ++node) {
    if (node == own_node_) continue;
    if (was_stopped) peers_[node].heard_at = now;
    receive(node, now);
    send(node, now, one_operation_pending);
  }
}

bool StatusExchange::all_know() const {
  for (size_t node = 0; node < peers_.size(); ++node) {
    const Peer& peer = peers_[node];
    if (node != own_node_ && !peer.departed.load() && !(peer.knows_departure && peer.sending->ended()))
      return false;
  }
  return true;
}

void StatusExchange::receive(size_t node, Duration now) {
  Peer& peer = peers_[node];
  if (peer.departed.load(std::memory_order_relaxed)) return;
  // over a slow link, a status comes behind all bytes that were sent before
  if (const size_t messages = endpoint_.received(static_cast<int>(node)); messages != peer.messages) {
    if (std::exchange(peer.is_missed, false))
      log_warning(text(describe(node), " responds again, after ", seconds_of(now - peer.heard_at), " s"));
    peer.messages = messages;
    peer.heard_at = now;
  }
  if (peer.receiving != nullptr && peer.receiving->ended()) {
    process_status(node, now);
    if (peer.departed.load(std::memory_order_relaxed)) return;
    peer.receiving = nullptr;
  }
  if (peer.receiving == nullptr) {
    const auto bytes = std::as_writable_bytes(std::span(peer.received.get(), 1));
    peer.receiving = endpoint_.receive(static_cast<int>(node), kTag, bytes, peer.received);
  }
  check_silence(node, now - peer.heard_at);
}

void StatusExchange::process_status(size_t node, Duration now) {
  Peer& peer = peers_[node];
  const Status ended = peer.receiving->status();
  if (!ended.ok()) {
    (void)group_.fail({Code::kPeerLost, text("lost ", describe(node), ": ", ended.message())});
    peer.departed.store(true);
    return;
  }
  peer.joined = true;
  NodeStatus& status = *peer.received;
  status.end_texts();
  peer.host = status.host.data();
  {
    const std::lock_guard lock(mutex_);
    // a status that comes after a gap may be from before it: it was under way while a machine or the link stood
    // still.
    const Duration gap = std::max(group_.options().failure_delay, 2 * options_.status_every);
    if (status.wait_id != peer.wait_id || now - peer.wait_heard_at > gap) peer.wait_since = now;
    peer.wait_heard_at = now;
    peer.wait_id = status.wait_id;
    peer.wait_name = status.wait_name.data();
  }
  if (status.has_notification != 0) notifications_->heard(node, status.notification);
  notifications_->heard_calls(node, status.calls);
  if (status.departed != 0) notifications_->heard_departure(node);
  if (status.wants_stacks != 0) group_.rank_table().want_stacks();
  if (const Status failure = status.failure(); !failure.ok()) (void)group_.fail(failure, status.exit_code);
  if (status.departed == 0) return;
  peer.departed.store(true);
  if (peer.sending != nullptr) endpoint_.cancel(peer.sending);  // nobody receives it
}

void StatusExchange::check_silence(size_t node, Duration silent) {
  if (silent > (loss_timeout_is_short_.load() && peers_[node].joined ? options_.stuck_timeout_at_end
                                                                     : options_.stuck_timeout))
    (void)group_.fail(
        {Code::kPeerLost,
         text("lost ", describe(node), ": rank ", group_.job_rank(0), " has received nothing from it for ",
              seconds_of(silent),
              " s; it is paused or stopped, or the network to it is cut (limit: TNT_TIMEOUT)")});
  if (silent <= options_.missed || !peers_[node].joined || std::exchange(peers_[node].is_missed, true))
    return;
  log_warning(text("rank ", group_.job_rank(0), " has received nothing from ", describe(node), " for ",
                   seconds_of(silent), " s: is it paused, stopped or swapping? It is lost after ",
                   seconds_of(options_.stuck_timeout), " s (TNT_TIMEOUT)"));
}

std::string StatusExchange::describe(size_t node) const {
  const std::string& host = peers_[node].host;
  return text(host.empty() ? "the machine of " : text("host '", host, "' with "), nodes_.describe(node));
}

void StatusExchange::send(size_t node, Duration now, bool one_operation_pending) {
  Peer& peer = peers_[node];
  if (peer.departed.load(std::memory_order_relaxed) || peer.knows_departure ||
      (peer.sending != nullptr && !peer.sending->ended()))
    return;
  const Status failure = group_.first_cause();
  const bool leaves = leaving_.load();
  const std::lock_guard lock(mutex_);
  const bool notifies = !peer.notifications.empty();
  const bool wants_stacks = group_.rank_table().wants_stacks();
  const bool knows_all = (failure.ok() || peer.knows_failure) && (!wants_stacks || peer.knows_stacks);
  if (!notifies && now - peer.sent_at < options_.status_every && knows_all && !leaves) return;
  NodeStatus& status = *peer.sent;
  status.has_notification = notifies ? 1 : 0;
  status.calls = notifies ? peer.notifications.front().calls : calls_;
  if (notifies) {
    status.notification = peer.notifications.front();
    peer.notifications.pop_front();
  }
  const bool is_last = leaves && peer.notifications.empty();
  status.departed = is_last ? 1 : 0;
  status.code = static_cast<int32_t>(failure.code());
  status.wants_stacks = wants_stacks ? 1 : 0;
  status.exit_code = failure.ok() ? 0 : group_.exit_code();
  write_text(failure.message(), status.message);
  status.wait_id = one_operation_pending ? wait_id_for(node) : 0;
  write_text(awaited_name_, status.wait_name);
  write_text(host_name(), status.host);
  const auto bytes = std::as_bytes(std::span(peer.sent.get(), 1));
  peer.sending = endpoint_.send(static_cast<int>(node), kTag, bytes, peer.sent);
  peer.sent_at = now;
  peer.knows_failure = !failure.ok();
  peer.knows_stacks = wants_stacks;
  peer.knows_departure = is_last;
}

uint32_t StatusExchange::wait_id_for(size_t node) const {
  const auto waits = [node](const transport::TransferPtr& each) {
    return each != nullptr && each->kind == transport::Transfer::Kind::kReceive &&
           each->peer == static_cast<int>(node) && !each->ended();
  };
  return std::any_of(awaited_.begin(), awaited_.end(), waits) ? awaited_id_ : 0;
}

void StatusExchange::publish_wait_edge(std::span<const transport::TransferPtr> transfers,
                                       const std::string& what) {
  const std::lock_guard lock(mutex_);
  awaited_ = transfers;
  awaited_name_ = what;
  ++awaited_id_;
}

void StatusExchange::clear_wait_edge() {
  const std::lock_guard lock(mutex_);
  awaited_ = {};
}

std::string StatusExchange::exclusive_wait_of(size_t node, Duration since) {
  const std::lock_guard lock(mutex_);
  const Peer& peer = peers_[node];
  // what it said before may be over: it speaks once in a while, and may have been stopped since
  const Duration both_since = std::max(peer.wait_since, since);
  const bool stuck = peer.wait_id != 0 && peer.wait_heard_at - both_since > group_.options().failure_delay;
  return stuck ? peer.wait_name : "";
}

void StatusExchange::notify(const Notification& notification) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t node = 0; node < peers_.size(); ++node) {
      if (node != own_node_ && !peers_[node].departed.load())
        peers_[node].notifications.push_back(notification);
    }
  }
  group_.wake_progress_thread(group_.rank());
}

void StatusExchange::set_calls(uint32_t calls) {
  const std::lock_guard lock(mutex_);
  calls_ = calls;
}

}  // namespace tarantella::collective::internode
