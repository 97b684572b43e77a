#pragma once
// The slow path of a wait for another rank: checks, between two sleeps, whether that rank may still come.
//
// A rank that is alive and busy is awaited without limit. The job ends if the awaited rank has died, has left or shows
// no sign of life, or if ranks wait for one another: each shows what it waits for in memory that all see (Waits), and a
// circle of waits ends the job. Another thread of a rank might resolve a circle. None can if the caller of every rank
// (see Group) waits: in a call, or for gradients while the rank before it waits for a call. Such a circle ends the job
// after options.grace, any other after options.timeout.
//
// Time counts only while this rank checks: if a signal stops the whole job for an hour, no rank was silent.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/group.h"
#include "collective/looked_at.h"
#include "collective/place.h"
#include "collective/waits.h"

namespace tarantella::collective {

enum class WaitFor { kCall, kGradients };

/// One wait. For one thread.
class Watch {
 public:
  /// `callers`: whether Group::caller() waits, or submits the awaited gradients. `what` names the wait in errors.
  Watch(Group& group, WaitFor kind, bool callers, std::string what);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Call it after each look that found `rank` still awaited. Returns ok while that rank may still come; else fails the
  /// group and returns its first cause. Does not block.
  Status check(int rank);

 private:
  /// The waits of ranks that wait for one another, in order from this rank on; empty if there are none.
  using Circle = std::vector<Wait>;

  Status suspect(const std::string& reason);
  void show(int job_rank);
  void warn(int job_rank);
  /// The chain of waits from `first` on, where next(wait) follows each, if it leads back to this rank; else empty.
  template <typename Next>
  Circle follow(Wait first, Next next) const;
  /// A circle of the ranks' callers, which ends the job after the grace, and one of any threads, after the limit.
  Circle callers_circle() const;
  Circle any_circle() const;
  Status check_circles();
  Status check_stall(int job_rank);
  Status entangled(const Circle& circle, const char* limit) const;
  std::string place() const;

  Group& group_;
  Waits& shown_;
  std::atomic<Wait>* const callers_wait_;  ///< in shown_, or nullptr
  const int own_;                          ///< this rank's number in the job
  const std::string what_;
  LookedAt looked_at_;
  const Clock::time_point since_ = Clock::now();
  Wait wait_;
  Duration next_warning_;
  std::optional<Question> question_;  ///< asked for a warning that is due
  Duration asked_at_{};
  int rank_ = -1;
  uint32_t heartbeat_ = 0;
  // in the time of looked_at_
  Duration last_sign_{};
  Duration suspect_since_ = Duration::max();
  Circle circle_;  ///< as first seen
  Duration circle_since_{};
  Duration lasting_since_ = Duration::max();
};

}  // namespace tarantella::collective
