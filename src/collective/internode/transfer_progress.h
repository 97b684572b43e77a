#pragma once
// Which thread makes progress on a leader's endpoint, and until when. One thread at a time does: the rank's progress
// thread in progress(), or a thread that waits itself, in progress_until_ended() or try_progress_if_one_pending(). That
// thread does so as long as its own operation is the only pending one and something comes soon. So a short message
// wakes no other thread. docs/memory_model.md shows that pending bytes always have a thread that moves them.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <span>

#include "base/wait_policy.h"
#include "collective/active_timer.h"
#include "collective/internode/progress_watchdog.h"
#include "collective/internode/status_exchange.h"
#include "collective/node_group.h"
#include "transport/endpoint.h"

namespace tarantella::collective::internode {

/// Thread-safe, except where a thread is named. The arguments must outlive it.
class TransferProgress {
 public:
  TransferProgress(NodeGroup& group, transport::Endpoint& endpoint, StatusExchange& status)
      : group_(group), endpoint_(endpoint), status_(status) {}

  /// Makes progress, and exchanges status, unless another thread does. The progress thread calls it at least every
  /// NodeGroup::kCheckInterval. Returns how long that thread may sleep until the next call if bytes are awaited, the
  /// longer the longer no transfer has ended; else kForever. Does not wait for other nodes, except in the call after
  /// shut_down().
  Duration progress();
  /// Counts a pending operation: a wait for transfers, or the exchange of a bucket, for which no thread need wait. The
  /// progress thread, once awake, polls for bytes while one is pending.
  void begin_operation() { pending_operations_.fetch_add(1); }
  void end_operation() { pending_operations_.fetch_sub(1); }
  /// Whether begin_operation() was called more often than end_operation().
  bool has_pending_operations() const { return pending_operations_.load() != 0; }
  /// Polls the endpoint on the calling thread, if exactly one operation is pending; otherwise returns false. A caller
  /// that stops polling must wake the progress thread if has_pending_operations(): the progress thread may have gone to
  /// sleep, relying on this caller.
  bool try_progress_if_one_pending();
  /// Makes progress on this thread until all `transfers` have ended, nothing has ended for WaitPolicy::kQuiet, or
  /// another operation is pending, too. Returns whether all have ended well.
  bool progress_until_ended(std::span<const transport::TransferPtr> transfers);
  /// Blocks until `transfer` has ended or the endpoint is closed, for NodeGroup::kCheckInterval at most. Another thread
  /// makes progress.
  void sleep_until_ended(const transport::Transfer& transfer);

  /// The time that all progress has counted, with at most a second between two polls.
  Duration now() const { return now_.load(std::memory_order_relaxed); }
  /// For one thread, which calls check() with it from time to time.
  ProgressWatchdog watchdog() const { return ProgressWatchdog(enter_exits_); }
  /// Fails the group if another thread has been inside the endpoint for longer than NodeGroup::stuck_timeout().
  void check(ProgressWatchdog& watchdog);

  /// Tells the other nodes that this one ends, and closes the endpoint. Blocks until the progress thread has done so,
  /// for at most a second. Idempotent; not on the progress thread.
  void shut_down();

 private:
  /// Polls up to `polls` times, on the thread that holds progress_mutex_. Returns whether a transfer has ended.
  bool poll(int polls);
  void close_endpoint();
  bool is_closed();

  NodeGroup& group_;
  transport::Endpoint& endpoint_;
  StatusExchange& status_;
  std::mutex progress_mutex_;  ///< held by the thread that makes progress; nobody waits for it
  ActiveTimer active_{WaitPolicy::kHeartbeat};  ///< guarded by progress_mutex_, as what follows
  bool had_pending_operations_ = false;         ///< in the last poll()
  Duration ended_at_{};  ///< when a transfer has last ended, or the wait has begun, by now()
  EnterExitCounter enter_exits_{0};
  ProgressWatchdog watchdog_{enter_exits_};  ///< of the progress thread
  std::atomic<Duration> now_{Duration{}};
  std::atomic<int> pending_operations_{0};  ///< begin_operation() less end_operation()
  std::mutex mutex_;                        ///< taken after progress_mutex_
  std::condition_variable changed_;
  bool closed_ = false;  ///< guarded by mutex_
};

}  // namespace tarantella::collective::internode
