#pragma once
// Time for waits: monotonic, so that a change of the wall clock does not affect them.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace tarantella {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

/// `seconds` as text("...") should show it, e.g. 0.25.
inline double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Longer than any wait, and short enough that now + kForever does not overflow.
constexpr Duration kForever = std::chrono::hours(100 * 365 * 24);

/// At most kForever, even for infinity.
inline Duration from_seconds(double seconds) {
  if (!(seconds < in_seconds(kForever))) return kForever;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// A point in time after which a wait gives up.
class Deadline {
 public:
  static Deadline after(Duration duration) { return Deadline(Clock::now() + std::min(duration, kForever)); }

  bool passed() const { return Clock::now() >= at_; }
  /// Never negative.
  Duration left() const { return std::max(Duration::zero(), at_ - Clock::now()); }
  /// Whole milliseconds left, rounded up, for poll(2); limited to some days.
  int left_ms() const {
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
    return static_cast<int>(std::min<int64_t>(milliseconds, std::numeric_limits<int>::max()));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace tarantella
