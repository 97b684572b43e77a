#pragma once
// Time as a rank sees it that looks at others again and again. A process that was stopped by a signal has not looked,
// and those whom it looks at may have been stopped with it.

#include <algorithm>

#include "base/clock.h"

namespace tarantella::collective {

/// One thread.
class LookedAt {
 public:
  /// Time that goes by between two looks counts for at most `at_most`.
  explicit LookedAt(Duration at_most) : at_most_(at_most) {}

  /// To be called with each look.
  Duration look() {
    const auto now = Clock::now();
    so_far_ += std::min(now - last_, at_most_);
    last_ = now;
    return so_far_;
  }
  /// That of the last look().
  Duration so_far() const { return so_far_; }

 private:
  const Duration at_most_;
  Clock::time_point last_ = Clock::now();
  Duration so_far_{};
};

}  // namespace tarantella::collective
