#pragma once
// When threads that keep cores awake give them up for a while. Pure.

#include <algorithm>

#include "base/clock.h"

namespace tarantella::runtime {

/// The time that passed, and the CPU time that was used in it.
struct Used {
  Duration wall;
  Duration process;  ///< by all threads of this process
  Duration own;      ///< by those among them that keep cores awake
};

/// Not thread-safe.
class Rests {
 public:
  static constexpr Duration kInterval = 10ms;  ///< between two looks, and the shortest rest
  static constexpr Duration kLongWait = 50ms;
  static constexpr Duration kLongest = 1s;
  static constexpr Duration kLongestInWait = 100ms;

  explicit Rests(int cpus) : cpus_(cpus) {}

  /// After about kInterval in which no core was idle: the rest to take now, zero for none.
  Duration after_work(const Used& used) {
    // Time on our cores that is not ours was somebody else's: idle priority yields in its own scheduling group only.
    if (used.wall * cpus_ - used.process > used.wall / 10) {
      waited_ = {};
      return rest_ = std::clamp(2 * rest_, kInterval, kLongest);
    }
    rest_ /= 2;
    waited_ = waits(used) ? waited_ + used.wall : Duration::zero();
    return waited_ < kLongWait ? Duration::zero() : look_ = kInterval;
  }

  /// After a rest: that to be added, while this rank still waits.
  Duration after_rest(const Used& used) {
    if (waited_ >= kLongWait && waits(used)) return look_ = std::min(2 * look_, kLongestInWait);
    waited_ = {};
    return {};
  }

 private:
  static bool waits(const Used& used) { return used.process - used.own < used.wall / 20; }

  const int cpus_;
  Duration rest_{};    ///< the last one for somebody else's sake, halved with every look without him
  Duration waited_{};  ///< in which this process did nothing else
  Duration look_{};    ///< the last rest in a long wait
};

}  // namespace tarantella::runtime
