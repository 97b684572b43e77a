#pragma once
// When what happened to a bucket in the step under way, for the timeline.

#include <atomic>

#include "timeline/timeline.h"

namespace tarantella::engine {

/// In the thread inside Plan::advance(), except where a function says otherwise.
class BucketTimes {
 public:
  /// Before a gradient of the bucket is counted that was submitted at `ready`. The first one of a step counts. In any
  /// thread.
  void begin(timeline::Timeline& timeline, uint32_t plan, size_t bucket, int64_t ready) {
    if (begun_.exchange(true, std::memory_order_relaxed)) return;
    record_.store(timeline.begin_bucket(plan, bucket, ready), std::memory_order_release);
  }
  /// The last gradient was counted. In any thread.
  void filled() {
    if (timeline::Record* record = get())
      record->parts.full.store(timeline::now(), std::memory_order_relaxed);
  }
  /// This rank's slice has been summed since `before`.
  void summed(int64_t before) {
    timeline::Record* const record = get();
    if (record == nullptr) return;
    record->parts.summing.store(before, std::memory_order_relaxed);
    record->parts.summed.store(timeline::now(), std::memory_order_relaxed);
  }
  /// The step of the bucket ends, if it has begun; with `failed` before all sums are there.
  void end(bool failed) {
    timeline::Record* const record = get();
    record_.store(nullptr, std::memory_order_relaxed);
    begun_.store(false, std::memory_order_relaxed);
    if (record == nullptr) return;
    record->parts.failed.store(failed ? 1 : 0, std::memory_order_relaxed);
    record->end.store(timeline::now(), std::memory_order_release);
  }

 private:
  timeline::Record* get() const { return record_.load(std::memory_order_acquire); }

  std::atomic<bool> begun_{false};
  std::atomic<timeline::Record*> record_{nullptr};  ///< nullptr between two steps, and if there was no room
};

}  // namespace tarantella::engine
