#pragma once
// A thread of a context for calls that their callers do not wait for.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "collective/node_group.h"

namespace tarantella::capi {

/// Runs tasks one after the other, in the order in which they come. The thread begins with the first one. Thread-safe.
class Worker {
 public:
  using Task = std::function<void()>;
  /// How long close() waits for the tasks: a library may not let one return.
  static constexpr Duration kClose = 1s;

  Worker() = default;
  ~Worker() { close(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// False, and the task does not run, after close(). Does not block. A task must own what it uses.
  bool add(Task task) {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) return false;
    if (!thread_.joinable()) thread_ = std::thread([state = state_] { state->run(); });  // first: it may fail
    state_->tasks.push_back(std::move(task));
    state_->changed.notify_all();
    return true;
  }

  /// Blocks until the tasks that were added have run, for kClose at most: then the thread is left behind. Must not be
  /// called in a task. Idempotent.
  void close() {
    const std::lock_guard joining(joining_);
    std::unique_lock lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
    if (!thread_.joinable()) return;
    const bool has_ended = state_->changed.wait_for(lock, kClose, [this] { return state_->ended; });
    lock.unlock();
    has_ended ? thread_.join() : thread_.detach();
  }

 private:
  struct State {
    void run() {
      collective::NodeGroup::count_as_creator_thread();
      std::unique_lock lock(mutex);
      while (true) {
        changed.wait(lock, [this] { return closed || !tasks.empty(); });
        if (tasks.empty()) break;
        Task task = std::move(tasks.front());
        tasks.pop_front();
        lock.unlock();
        task();
        task = nullptr;  // not under the lock: what it owns may call back
        lock.lock();
      }
      ended = true;
      changed.notify_all();
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> tasks;
    bool closed = false;
    bool ended = false;
  };

  const std::shared_ptr<State> state_ =
      std::make_shared<State>();  ///< the thread's too, which may outlive this
  std::mutex joining_;
  std::thread thread_;  ///< guarded by joining_ from close() on
};

}  // namespace tarantella::capi
