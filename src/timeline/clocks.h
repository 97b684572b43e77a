#pragma once
// Clocks of several machines: how far one is ahead of another, as round trips between them tell. Pure. All times are in
// nanoseconds.

#include <cstdint>
#include <string>

namespace tarantella::timeline {

/// How far a clock is ahead of another at one time.
struct Ahead {
  int64_t time = 0;    ///< on the clock itself
  int64_t by = 0;      ///< less than zero: it is behind
  int64_t within = 0;  ///< what `by` may be off
};

/// From a question that left at `sent` and an answer that came at `received`, both on the clock, while the other one
/// showed `there` in between.
Ahead ahead_of(int64_t there, int64_t sent, int64_t received);

/// A clock that was compared with another one at the start and at the end of a job. In between, the difference changes
/// evenly; outside, not at all.
class Shift {
 public:
  /// Of the other clock itself.
  Shift() = default;
  Shift(const Ahead& start, const Ahead& end) : start_(start), end_(end) {}

  /// A time of this clock on the other one.
  int64_t there(int64_t time) const { return time - by(time); }
  const Ahead& start() const { return start_; }
  const Ahead& end() const { return end_; }
  int64_t within() const;
  /// "is 1.3 ms ahead, known to within 0.2 ms", and how much it has gained or lost since the start if that is certain.
  std::string words() const;

 private:
  int64_t by(int64_t time) const;

  Ahead start_, end_;
};

}  // namespace tarantella::timeline
