#include "collective/internode/transfer_progress.h"

#include <algorithm>
#include <thread>

namespace tarantella::collective::internode {
namespace {

constexpr Duration kClose = 500ms;  // until others have received the last status, and all sends have ended

}  // namespace

Duration TransferProgress::progress() {
  // Before the lock is tried: who makes progress alone then sees that others wait, too, and leaves them to this thread.
  const bool others = pending_operations_.load() > 1;
  const std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  check(watchdog_);
  if (!progress_lock.owns_lock()) return others ? WaitPolicy::pause_between_polls({}) : kForever;
  (void)poll(1);
  if (status_.is_leaving() && !is_closed()) close_endpoint();
  if (!has_pending_operations()) return kForever;
  return WaitPolicy::pause_between_polls(now() - ended_at_);
}

bool TransferProgress::try_progress_if_one_pending() {
  if (pending_operations_.load() != 1 || status_.is_leaving()) return false;
  const std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  if (!progress_lock.owns_lock()) return false;
  (void)poll(WaitPolicy::kPollsPerCheck);
  return true;
}

bool TransferProgress::poll(int polls) {
  if (is_closed()) return false;
  const InsideEndpoint inside(enter_exits_);
  bool ended = false;
  for (int i = 0; i < polls && !ended; ++i) ended = endpoint_.progress() != 0;
  const Duration now =
      active_.update();  // afterwards: a signal may have stopped this process in the endpoint
  now_.store(now, std::memory_order_relaxed);
  if (ended || !had_pending_operations_) ended_at_ = now;
  had_pending_operations_ = has_pending_operations();
  status_.poll(now, pending_operations_.load() == 1);
  if (ended) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  return ended;
}

bool TransferProgress::progress_until_ended(std::span<const transport::TransferPtr> transfers) {
  begin_operation();
  std::unique_lock progress_lock(progress_mutex_, std::defer_lock);
  Deadline quiet = Deadline::after(WaitPolicy::kQuiet);
  int turns = 0;
  auto next = transfers.begin();
  const auto all_ended = [&] {
    for (; next != transfers.end() && (*next)->ended(); ++next) {
      quiet = Deadline::after(WaitPolicy::kQuiet);
      turns = 0;
    }
    return next == transfers.end();
  };
  while (!all_ended() && pending_operations_.load() == 1 && !status_.is_leaving() && group_.failure().ok() &&
         (turns++ < WaitPolicy::kYields || !quiet.passed())) {
    if ((!progress_lock.owns_lock() && !progress_lock.try_lock()) || !poll(WaitPolicy::kPollsPerCheck))
      std::this_thread::yield();
  }
  if (progress_lock.owns_lock()) progress_lock.unlock();
  end_operation();
  // The progress thread may have found the endpoint taken, and left to this one what others await.
  if (has_pending_operations() || status_.is_leaving()) group_.wake_progress_thread(group_.rank());
  return all_ended() && std::all_of(transfers.begin(), transfers.end(),
                                    [](const auto& each) { return each->status().ok(); });
}

void TransferProgress::sleep_until_ended(const transport::Transfer& transfer) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, WaitPolicy::kCheckInterval, [&] { return transfer.ended() || closed_; });
}

void TransferProgress::check(ProgressWatchdog& watchdog) {
  const Duration stuck = watchdog.stuck();
  if (stuck <= group_.stuck_timeout()) return;
  (void)group_.fail({Code::kPeerLost,
                     text("rank ", group_.job_rank(0), " has been stuck in a transfer between machines for ",
                          static_cast<int>(in_seconds(stuck)),
                          " s; another machine is down, or the network to it is cut (limit: TNT_TIMEOUT)")});
}

void TransferProgress::shut_down() {
  status_.leave();
  group_.wake_progress_thread(group_.rank());
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, 2 * kClose, [this] { return closed_; })) return;
  lock.unlock();
  // a callback on the progress thread may have called this; one that is stuck in the endpoint holds the mutex
  const std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  if (progress_lock.owns_lock() && !is_closed()) close_endpoint();
}

void TransferProgress::close_endpoint() {
  const InsideEndpoint inside(enter_exits_);
  const Deadline deadline = Deadline::after(kClose);
  while (!deadline.passed() && !status_.all_know()) {
    status_.poll(now(), false);
    if (endpoint_.progress() == 0) std::this_thread::yield();
  }
  endpoint_.close(deadline);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool TransferProgress::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace tarantella::collective::internode
