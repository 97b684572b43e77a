#pragma once
// Waits in a test for tensors that are submitted to a plan.

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/status.h"

namespace tarantella {

class Completion {
 public:
  /// done() will be called `expected` times.
  explicit Completion(size_t expected) : open_(expected) {}

  void done(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status.ok()) status_ = status;
    --open_;
    changed_.notify_all();
  }
  /// The last error, or ok. Blocks until all are done, for at most a minute.
  Status wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return open_ == 0; }))
      return {Code::kTimeout, "test"};
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t open_;
  Status status_;
};

}  // namespace tarantella
