#pragma once
// Time as counted by a rank that checks other ranks again and again. While a signal stops its process it does not
// check, and the others may be stopped too.

#include <algorithm>

#include "base/clock.h"

namespace tarantella::collective {

/// For one thread at a time.
class ActiveTimer {
 public:
  /// The time between two updates counts as at most `at_most`.
  explicit ActiveTimer(Duration at_most) : at_most_(at_most) {}

  /// Call it at each check of the others. Returns the time counted so far.
  Duration update() {
    const auto now = Clock::now();
    so_far_ += std::min(now - last_, at_most_);
    last_ = now;
    return so_far_;
  }
  /// What the last update() returned.
  Duration so_far() const { return so_far_; }

 private:
  const Duration at_most_;
  Clock::time_point last_ = Clock::now();
  Duration so_far_{};
};

}  // namespace tarantella::collective
