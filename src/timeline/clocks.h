#pragma once
// Clocks of several machines: how far one is ahead of another, as round trips between them tell. Pure. All times are in
// nanoseconds.

#include <cstdint>
#include <string>

namespace tarantella::timeline {

/// How far a clock is ahead of another one, at one time.
struct ClockOffset {
  int64_t time = 0;    ///< on the clock itself
  int64_t by = 0;      ///< less than zero: it is behind
  int64_t within = 0;  ///< what `by` may be off
};

/// From a question that left at `sent` and an answer that came at `received`, both on the clock, while the other one
/// showed `there` in between.
ClockOffset offset_of(int64_t there, int64_t sent, int64_t received);

/// How a clock drifts from another one: its offsets at the start and at the end of a job. In between, the offset
/// changes evenly; outside, not at all.
class ClockDrift {
 public:
  /// None: both are one clock.
  ClockDrift() = default;
  ClockDrift(const ClockOffset& start, const ClockOffset& end) : start_(start), end_(end) {}

  /// A time of this clock on the other one.
  int64_t there(int64_t time) const { return time - by(time); }
  const ClockOffset& start() const { return start_; }
  const ClockOffset& end() const { return end_; }
  int64_t within() const;
  /// "is 1.3 ms ahead, known to within 0.2 ms", and how much it has gained or lost since the start if that is certain.
  std::string words() const;

 private:
  int64_t by(int64_t time) const;

  ClockOffset start_, end_;
};

}  // namespace tarantella::timeline
