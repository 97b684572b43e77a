#include "engine/progress_thread.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/wait_policy.h"

namespace tarantella::engine {
namespace {

Duration longest_sleep(Progressable::PollHint hint) {
  return std::min(hint.max_poll_interval,
                  hint.within_check_interval ? WaitPolicy::kCheckInterval : WaitPolicy::kHeartbeat);
}

}  // namespace

struct ProgressThread::State {
  explicit State(std::shared_ptr<collective::RankTable> table) : rank_table(std::move(table)) {}

  void run();
  Progressable::PollHint advance_all();

  const std::shared_ptr<collective::RankTable> rank_table;
  std::mutex mutex;
  std::condition_variable advanced;
  std::vector<std::shared_ptr<Progressable>>
      registered;                           ///< guarded by mutex; without an owner if it is not shared
  const Progressable* advancing = nullptr;  ///< guarded by mutex
  bool is_left_behind = false;              ///< guarded by mutex
  std::atomic<bool> stopping{false};
};

ProgressThread::ProgressThread(std::shared_ptr<collective::RankTable> rank_table)
    : state_(std::make_shared<State>(std::move(rank_table))), thread_([state = state_] { state->run(); }) {}

ProgressThread::~ProgressThread() {
  state_->stopping.store(true);
  state_->rank_table->wake_progress_thread(state_->rank_table->rank());
  const bool is_left_behind = [this] {
    const std::lock_guard lock(state_->mutex);
    return state_->is_left_behind;
  }();
  is_left_behind ? thread_.detach() : thread_.join();
}

void ProgressThread::add(Progressable& added) {
  add(std::shared_ptr<Progressable>(std::shared_ptr<void>(), &added));
}

void ProgressThread::add(std::shared_ptr<Progressable> added) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->registered.push_back(std::move(added));
  }
  state_->rank_table->wake_progress_thread(state_->rank_table->rank());
}

void ProgressThread::remove(const Progressable& removed) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto found = std::find_if(state.registered.begin(), state.registered.end(),
                                  [&](const auto& each) { return each.get() == &removed; });
  if (found == state.registered.end()) return;
  const std::shared_ptr<Progressable> owner = std::move(*found);
  state.registered.erase(found);
  if (std::this_thread::get_id() == thread_.get_id()) return;
  const auto returned = [&] { return state.advancing != &removed; };
  if (owner.use_count() == 0) {
    state.advanced.wait(lock, returned);
  } else if (!state.advanced.wait_for(lock, kRemove, returned)) {
    state.is_left_behind = true;
  }
}

Progressable::PollHint ProgressThread::State::advance_all() {
  Progressable::PollHint hint;
  std::unique_lock lock(mutex);
  // Not locked during advance(), whose callbacks may remove any of them.
  const std::vector<std::shared_ptr<Progressable>> all = registered;
  for (const std::shared_ptr<Progressable>& each : all) {
    if (std::find(registered.begin(), registered.end(), each) == registered.end()) continue;
    advancing = each.get();
    lock.unlock();
    const Progressable::PollHint its = each->advance();
    hint = {hint.within_check_interval || its.within_check_interval, hint.spins || its.spins,
            std::min(hint.max_poll_interval, its.max_poll_interval)};
    lock.lock();
    advancing = nullptr;
    advanced.notify_all();
  }
  return hint;
}

void ProgressThread::State::run() {
  std::optional<uint32_t> last;  // wake_count() at the last advance_all()
  Deadline spinning = Deadline::after(WaitPolicy::kProgressThreadSpin);
  int polls = 0;  // in a row
  while (true) {
    // Before `stopping` is read: the wake-up of a later stop changes the count, so this thread does not sleep.
    const uint32_t seen = rank_table->wake_count();
    if (stopping.load()) return;
    rank_table->beat();
    const Progressable::PollHint hint = advance_all();
    if (last != seen) spinning = Deadline::after(WaitPolicy::kProgressThreadSpin);
    last = seen;
    const bool awaits_bytes = hint.max_poll_interval != kForever;
    if (!awaits_bytes) polls = 0;
    const bool spins = hint.spins && (hint.within_check_interval || awaits_bytes) && !spinning.passed();
    if (awaits_bytes && (spins || ++polls < WaitPolicy::kPolls)) {
      std::this_thread::yield();
      continue;
    }
    while (spins && rank_table->wake_count() == seen && !spinning.passed()) std::this_thread::yield();
    rank_table->sleep_until_woken(seen, longest_sleep(hint));
  }
}

}  // namespace tarantella::engine
