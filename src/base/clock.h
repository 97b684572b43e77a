#pragma once
// Time for waits: monotonic, so that a changed wall clock cannot end or prolong one.

#include <algorithm>
#include <chrono>

namespace tarantella {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

/// `seconds` as text("...") should show it, e.g. 0.25.
inline double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// A point in time after which a wait gives up.
class Deadline {
 public:
  static Deadline after(Duration duration) { return Deadline(Clock::now() + duration); }

  bool passed() const { return Clock::now() >= at_; }
  /// Never negative.
  Duration left() const { return std::max(Duration::zero(), at_ - Clock::now()); }
  /// Whole milliseconds left, rounded up, for poll(2).
  int left_ms() const {
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left()).count());
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace tarantella
