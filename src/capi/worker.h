#pragma once
// A thread of a context for calls that their callers do not wait for.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "collective/group.h"

namespace tarantella::capi {

/// Runs tasks one after the other, in the order in which they come. The thread begins with the first one. Thread-safe.
class Worker {
 public:
  using Task = std::function<void()>;

  Worker() = default;
  ~Worker() { close(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// False, and the task does not run, after close(). Does not block.
  bool add(Task task) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });  // first: it may fail
    tasks_.push_back(std::move(task));
    added_.notify_one();
    return true;
  }

  /// Blocks until the tasks that were added have run. Must not be called in a task. Idempotent.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      added_.notify_one();
    }
    const std::lock_guard joining(joining_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    collective::Group::act_for_callers();
    std::unique_lock lock(mutex_);
    while (true) {
      added_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Task> tasks_;
  bool closed_ = false;
  std::mutex joining_;
  std::thread thread_;
};

}  // namespace tarantella::capi
