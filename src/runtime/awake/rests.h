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
  /// Each thread sleeps so long between two looks, and wakes up a little later. One that never sleeps was seen to hold
  /// back those of other scheduling groups for seconds (Linux 6.18).
  static constexpr Duration kNap = 100us;
  static constexpr Duration kLongWait = 50ms;
  static constexpr Duration kLongest = 1s;
  static constexpr Duration kLongestInWait = 100ms;

  explicit Rests(int cpus) : cpus_(cpus) {}

  /// After about kInterval with a nap of each thread: the rest to take now, zero for none.
  Duration after_work(const Used& used) {
    // Time on our cores that is not ours was somebody else's: idle priority yields in its own scheduling group only.
    // Who waited for a core during a nap has it afterwards, so that he shows here, too.
    const Duration naps = cpus_ * 2 * kNap;
    const bool alone = used.wall * cpus_ - used.process <= used.wall / 10 + naps;
    rest_ = alone ? rest_ / 2 : std::clamp(2 * rest_, kInterval, kLongest);
    return std::max(alone ? Duration::zero() : rest_, in_wait(used));
  }

  /// After a rest: that to be added.
  Duration after_rest(const Used& used) { return in_wait(used); }

 private:
  Duration in_wait(const Used& used) {
    const bool waits = used.process - used.own < used.wall / 20;
    waited_ = waits ? waited_ + used.wall : Duration::zero();
    look_ = waited_ < kLongWait ? Duration::zero() : std::clamp(2 * look_, kInterval, kLongestInWait);
    return look_;
  }

  const int cpus_;
  Duration rest_{};    ///< the last one for somebody else's sake, halved with every look without him
  Duration waited_{};  ///< in which this process has done nothing else
  Duration look_{};    ///< the last rest in a long wait
};

}  // namespace tarantella::runtime
