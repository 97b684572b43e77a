#include "collective/across/bridge.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/fixed_text.h"
#include "base/host.h"
#include "base/log.h"

namespace tarantella::collective::across {
namespace {

constexpr Duration kParting = 500ms;
// How long a call drives without anything that ends: so many times at least, if others use the core.
constexpr Duration kDrive = 2ms;
constexpr int kTurns = 50;
// How often a thread that only waits for bytes looks for them before it looks for anything else, and yields.
constexpr int kLooks = 4;
// The progress thread sleeps for a part of the time in which nothing has ended, within limits. So a wait for a late
// node costs its core little, and a transfer hardly takes longer.
constexpr int kPausePart = 64;
constexpr Duration kLeastPause = 50us, kLongestPause = 1ms;

int64_t seconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

transport::Tag tag_of(Stream stream) { return static_cast<transport::Tag>(stream); }

}  // namespace

Bridge::Bridge(std::shared_ptr<Group> group, std::unique_ptr<transport::Wire> wire, Nodes nodes,
               std::shared_ptr<Posts> posts, BridgeOptions options)
    : group_(std::move(group)),
      nodes_(std::move(nodes)),
      node_(nodes_.node_of(group_->job_rank(0))),
      options_(options),
      posts_(std::move(posts)),
      peers_(nodes_.count()),
      looked_at_(kLook),
      wire_(std::move(wire)) {}

Duration Bridge::advance() {
  // Before the lock is tried: who drives alone then sees that others wait, too, and leaves them to this thread.
  const bool others = waiting_.load() > 1;
  const std::unique_lock driving(driving_, std::try_to_lock);
  look_at_driver(driving.owns_lock());
  if (!driving.owns_lock()) return others ? kLeastPause : kForever;
  (void)drive(1);
  if (leaving_.load() && !is_closed()) close_wire(now());
  if (!is_awaited()) return kForever;
  return std::clamp((now() - moved_at_) / kPausePart, kLeastPause, kLongestPause);
}

bool Bridge::drive_alone() {
  if (waiting_.load() != 1 || leaving_.load()) return false;
  const std::unique_lock driving(driving_, std::try_to_lock);
  if (!driving.owns_lock()) return false;
  (void)drive(kLooks);
  return true;
}

void Bridge::look_at_driver(bool is_this_thread) {
  const Duration now = looked_at_driver_.look();
  const Duration last_drive = this->now();
  if (is_this_thread || last_drive != seen_drive_) driven_at_ = now;
  seen_drive_ = last_drive;
  const Duration stuck = now - driven_at_;
  if (stuck <= group_->limit()) return;
  (void)group_->fail(
      {Code::kPeerLost, text("rank ", group_->job_rank(0), " is stuck in a transfer between machines for ",
                             static_cast<int>(in_seconds(stuck)),
                             " s; another one is off, or the network to it is cut (limit: TNT_TIMEOUT)")});
}

bool Bridge::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool Bridge::drive(int looks) {
  const auto time = Clock::now();
  const Duration now = looked_at_.look();
  now_.store(now, std::memory_order_relaxed);
  const bool stopped = time - last_time_ > options_.stopped;
  last_time_ = time;
  if (is_closed()) return false;
  bool ended = false;
  for (int look = 0; look < looks && !ended; ++look) ended = wire_->progress() != 0;
  if (ended || !was_awaited_) moved_at_ = now;
  was_awaited_ = is_awaited();
  for (size_t node = 0; node < peers_.size(); ++node) {
    if (node == node_) continue;
    if (stopped) peers_[node].heard_at = now;
    hear(node, now);
    say(node, now);
  }
  if (ended) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  return ended;
}

bool Bridge::drive_for(std::span<const transport::Request> requests) {
  begin_waiting();
  std::unique_lock driving(driving_, std::defer_lock);
  Deadline idle = Deadline::after(kDrive);
  int turns = 0;
  auto next = requests.begin();
  const auto all_ended = [&] {
    for (; next != requests.end() && (*next)->ended(); ++next) {
      idle = Deadline::after(kDrive);
      turns = 0;
    }
    return next == requests.end();
  };
  while (!all_ended() && waiting_.load() == 1 && !leaving_.load() && group_->failure().ok() &&
         (turns++ < kTurns || !idle.passed())) {
    if ((!driving.owns_lock() && !driving.try_lock()) || !drive(kLooks)) std::this_thread::yield();
  }
  if (driving.owns_lock()) driving.unlock();
  end_waiting();
  // The progress thread may have found the wire taken, and left to this one what others await.
  if (is_awaited() || leaving_.load()) group_->ring(group_->rank());
  return all_ended() &&
         std::all_of(requests.begin(), requests.end(), [](const auto& each) { return each->status().ok(); });
}

void Bridge::hear(size_t node, Duration now) {
  Peer& peer = peers_[node];
  if (peer.left.load(std::memory_order_relaxed)) return;
  // over a slow link, news come behind all bytes that were sent before
  if (const size_t received = wire_->received(static_cast<int>(node)); received != peer.received) {
    if (std::exchange(peer.is_missed, false))
      log_warning(text(named(node), " is heard again, after ", seconds_of(now - peer.heard_at), " s"));
    peer.received = received;
    peer.heard_at = now;
  }
  if (peer.hearing != nullptr && peer.hearing->ended()) {
    const Status status = peer.hearing->status();
    if (!status.ok()) {
      (void)group_->fail({Code::kPeerLost, text("lost ", named(node), ": ", status.message())});
      peer.left.store(true);
      return;
    }
    peer.joined = true;
    News& news = *peer.heard;
    news.end_texts();
    peer.host = news.host.data();
    {
      const std::lock_guard lock(mutex_);
      // News that come after a gap may be from before it: they were under way while a machine or the link stood still.
      const Duration gap = std::max(group_->options().grace, 2 * options_.news_every);
      if (news.call != peer.call || now - peer.call_heard_at > gap) peer.call_since = now;
      peer.call_heard_at = now;
      peer.call = news.call;
      peer.call_name = news.call_name.data();
    }
    if (news.has_post != 0) posts_->heard(node, news.post);
    posts_->heard_calls(node, news.calls);
    if (news.left != 0) posts_->heard_leave(node);
    if (news.wants_stacks != 0) group_->members().want_stacks();
    if (const Status failure = news.failure(); !failure.ok()) (void)group_->fail(failure, news.exit_code);
    if (news.left != 0) {
      peer.left.store(true);
      if (peer.saying != nullptr) wire_->cancel(peer.saying);  // nobody hears it
      return;
    }
    peer.hearing = nullptr;
  }
  if (peer.hearing == nullptr) {
    const auto bytes = std::as_writable_bytes(std::span(peer.heard.get(), 1));
    peer.hearing = receive(node, Stream::kNews, bytes, peer.heard);
  }
  judge_silence(node, now - peer.heard_at);
}

void Bridge::judge_silence(size_t node, Duration silent) {
  if (silent > (expects_end_.load() && peers_[node].joined ? options_.short_silence : options_.silence))
    (void)group_->fail(
        {Code::kPeerLost,
         text("lost ", named(node), ": rank ", group_->job_rank(0), " has heard nothing from it for ",
              seconds_of(silent),
              " s; it is paused or stopped, or the network to it is cut (limit: TNT_TIMEOUT)")});
  if (silent <= options_.missed || !peers_[node].joined || std::exchange(peers_[node].is_missed, true))
    return;
  log_warning(text("rank ", group_->job_rank(0), " has heard nothing from ", named(node), " for ",
                   seconds_of(silent), " s: is it paused, stopped or swapping? It is lost after ",
                   seconds_of(options_.silence), " s (TNT_TIMEOUT)"));
}

std::string Bridge::named(size_t node) const {
  const std::string& host = peers_[node].host;
  return text(host.empty() ? "the machine of " : text("host '", host, "' with "), nodes_.describe(node));
}

void Bridge::say(size_t node, Duration now) {
  Peer& peer = peers_[node];
  if (peer.left.load(std::memory_order_relaxed) || peer.knows_leave ||
      (peer.saying != nullptr && !peer.saying->ended()))
    return;
  const Status failure = group_->first_cause();
  const bool leaves = leaving_.load();
  const std::lock_guard lock(mutex_);
  const bool posted = !peer.posts.empty();
  const bool wants_stacks = group_->members().wants_stacks();
  const bool knows_all = (failure.ok() || peer.knows_failure) && (!wants_stacks || peer.knows_stacks);
  if (!posted && now - peer.said_at < options_.news_every && knows_all && !leaves) return;
  News& news = *peer.said;
  news.has_post = posted ? 1 : 0;
  news.calls = posted ? peer.posts.front().call : calls_;
  if (posted) {
    news.post = peer.posts.front();
    peer.posts.pop_front();
  }
  const bool is_last = leaves && peer.posts.empty();
  news.left = is_last ? 1 : 0;
  news.code = static_cast<int32_t>(failure.code());
  news.wants_stacks = wants_stacks ? 1 : 0;
  news.exit_code = failure.ok() ? 0 : group_->exit_code();
  write_text(failure.message(), news.message);
  news.call = waits_only_for(node);
  write_text(awaited_name_, news.call_name);
  write_text(host_name(), news.host);
  peer.saying = send(node, Stream::kNews, std::as_bytes(std::span(peer.said.get(), 1)), peer.said);
  peer.said_at = now;
  peer.knows_failure = !failure.ok();
  peer.knows_stacks = wants_stacks;
  peer.knows_leave = is_last;
}

uint32_t Bridge::waits_only_for(size_t node) const {
  if (waiting_.load() != 1) return 0;
  const auto waits = [node](const transport::Request& each) {
    return each != nullptr && each->kind == transport::Transfer::Kind::kReceive &&
           each->peer == static_cast<int>(node) && !each->ended();
  };
  return std::any_of(awaited_.begin(), awaited_.end(), waits) ? awaited_number_ : 0;
}

std::string Bridge::stuck_call_of(size_t node, Duration since) {
  const std::lock_guard lock(mutex_);
  const Peer& peer = peers_[node];
  // what it said before may be over: it speaks once in a while, and may have been stopped since
  const Duration both_since = std::max(peer.call_since, since);
  const bool stuck = peer.call != 0 && peer.call_heard_at - both_since > group_->options().grace;
  return stuck ? peer.call_name : "";
}

void Bridge::close_wire(Duration now) {
  const Deadline deadline = Deadline::after(kParting);
  const auto told = [](const Peer& peer) {
    return peer.left.load() || (peer.knows_leave && peer.saying->ended());
  };
  while (!deadline.passed()) {
    bool all = true;
    for (size_t node = 0; node < peers_.size(); ++node) {
      if (node == node_ || told(peers_[node])) continue;
      hear(node, now);
      say(node, now);
      all = false;
    }
    if (all) break;
    if (wire_->progress() == 0) std::this_thread::yield();
  }
  wire_->close(deadline);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

transport::Request Bridge::send(size_t node, Stream stream, std::span<const std::byte> bytes,
                                std::shared_ptr<const void> owner) {
  return send(node, tag_of(stream), bytes, std::move(owner));
}

transport::Request Bridge::receive(size_t node, Stream stream, std::span<std::byte> bytes,
                                   std::shared_ptr<const void> owner) {
  return receive(node, tag_of(stream), bytes, std::move(owner));
}

transport::Request Bridge::send(size_t node, transport::Tag tag, std::span<const std::byte> bytes,
                                std::shared_ptr<const void> owner) {
  return wire_->send(static_cast<int>(node), tag, bytes, std::move(owner));
}

transport::Request Bridge::receive(size_t node, transport::Tag tag, std::span<std::byte> bytes,
                                   std::shared_ptr<const void> owner) {
  return wire_->receive(static_cast<int>(node), tag, bytes, std::move(owner));
}

void Bridge::show_wait(std::span<const transport::Request> requests, const std::string& what) {
  const std::lock_guard lock(mutex_);
  awaited_ = requests;
  awaited_name_ = what;
  ++awaited_number_;
}

void Bridge::hide_wait() {
  const std::lock_guard lock(mutex_);
  awaited_ = {};
}

Status Bridge::sleep_until_ended(std::span<const transport::Request> requests, const std::string& what) {
  show_wait(group_->is_caller() ? requests : decltype(requests)(),
            what);  // another thread may go on for others
  begin_waiting();
  std::atomic<bool>& far = group_->members().waits(group_->job_rank(group_->rank())).far;
  far.store(true);
  LookedAt looked_at(4 * Group::kSlice);
  Duration next_warning = group_->options().warn_every;
  Duration left_since = Duration::max();
  auto next = [&, k = size_t{0}]() mutable {
    while (k < requests.size() && requests[k]->ended() && requests[k]->status().ok()) ++k;
    return k;
  };
  if (next() < requests.size()) group_->ring(group_->rank());
  Status status;
  for (size_t k = next(); k < requests.size() && status.ok(); k = next()) {
    const transport::Transfer& awaited = *requests[k];
    if (awaited.ended()) {
      if (awaited.status().ok()) continue;  // since next() looked
      status = leaving_.load() ? group_->failure() : Status();
      if (status.ok()) status = group_->fail_in(what, awaited.status());
      break;
    }
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, Group::kSlice, [&] { return awaited.ended() || closed_; });
    }
    if (awaited.ended() && awaited.status().ok()) continue;
    status = group_->failure();
    const Duration now = looked_at.look();
    const auto node = static_cast<size_t>(awaited.peer);
    const std::string place = text("rank ", group_->job_rank(group_->rank()), " waits in ", what, ": ");
    if (status.ok() && peers_[node].left.load()) {
      left_since = std::min(left_since, now);
      if (now - left_since >= group_->options().grace)
        status = group_->fail({Code::kPeerLost, text(place, nodes_.describe(node),
                                                     " ended; make the same calls with the same number of "
                                                     "batches on every rank")});
    }
    if (status.ok() && group_->stalls(now, Group::kStallsFar))
      status = group_->fail_stalled(place, nodes_.describe(node), now);
    if (now >= next_warning) {
      next_warning = now + group_->options().warn_every;
      log_warning(
          text(place, nodes_.describe(node), " did not come for ", static_cast<int>(in_seconds(now)), " s"));
    }
  }
  if (!status.ok()) {
    for (const transport::Request& each : requests) wire_->cancel(each);
  }
  far.store(false);
  end_waiting();
  hide_wait();
  return status;
}

void Bridge::post(const Post& post) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t node = 0; node < peers_.size(); ++node) {
      if (node != node_ && !peers_[node].left.load()) peers_[node].posts.push_back(post);
    }
  }
  group_->ring(group_->rank());
}

void Bridge::count_call(uint32_t calls) {
  const std::lock_guard lock(mutex_);
  calls_ = calls;
}

void Bridge::leave() {
  leaving_.store(true);
  group_->ring(group_->rank());
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, 2 * kParting, [this] { return closed_; });
}

}  // namespace tarantella::collective::across
