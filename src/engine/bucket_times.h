#pragma once
// When what happened to a bucket in the step under way, for the timeline.

#include <atomic>

#include "timeline/timeline.h"

namespace tarantella::engine {

/// begin() and filled() may be called in any thread, the others in the thread inside Plan::advance().
class BucketTimes {
 public:
  /// A gradient of the bucket was submitted at `ready`. The first one counts.
  void begin(int64_t ready) {
    int64_t none = 0;
    begin_.compare_exchange_strong(none, ready, std::memory_order_relaxed);
  }
  /// Its last gradient is there now.
  void filled() { full_.store(timeline::now(), std::memory_order_relaxed); }
  /// This rank's slice has been summed since `before`.
  void summed(int64_t before) {
    summing_ = before;
    summed_ = timeline::now();
  }
  /// The bucket ends now. Records it, if it has begun, and forgets it. With `failed` its sums are not complete.
  void end(timeline::Timeline& timeline, uint32_t plan, size_t bucket, bool failed) {
    const int64_t begin = begin_.load(std::memory_order_relaxed);
    if (begin == 0) return;
    const int64_t full = full_.load(std::memory_order_relaxed);
    timeline.bucket(plan, bucket, begin, timeline::now(), {full, summing_, summed_, failed ? 1U : 0U});
    begin_.store(0, std::memory_order_relaxed);
    full_.store(0, std::memory_order_relaxed);
    summing_ = summed_ = 0;
  }

 private:
  std::atomic<int64_t> begin_{0};
  std::atomic<int64_t> full_{0};
  int64_t summing_ = 0;
  int64_t summed_ = 0;
};

}  // namespace tarantella::engine
