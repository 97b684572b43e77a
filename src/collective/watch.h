#pragma once
// The slow path of a wait for another rank: looks, between two sleeps, whether that one may still come.
//
// One that lives and is busy is waited for without limit. One that is dead, gone or silent is not, nor are ranks that
// wait for one another: what a rank waits for stands in memory that all see (Waits), and a circle of waits
// ends the job. Other threads of its ranks might open a circle. None can if, in every rank, it is the rank's caller
// that waits: in a call, or for gradients while the one before waits for a call. Such a circle ends after
// options.grace, any other after options.timeout.
//
// All of these times are counted while this rank looks: where the whole job was stopped for an hour, nobody was silent.

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

/// One wait. One thread.
class Watch {
 public:
  /// `callers`: whether it is Group::caller() that waits, or whose gradients are waited for.
  Watch(Group& group, WaitFor kind, bool callers, std::string what);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// To be called while the wait for `rank` has just been found in vain. Ok while it may still come; else fails the
  /// group and returns its first cause.
  Status check(int rank);

 private:
  /// The waits of ranks that wait for one another, in order, this one first; empty where there are none.
  using Circle = std::vector<Wait>;

  Status suspect(const std::string& reason);
  void show(int job_rank);
  void warn(int job_rank);
  /// The waits from `first` on, next(wait) after each, if they lead back to this rank.
  template <typename Next>
  Circle follow(Wait first, Next next) const;
  /// Of the ranks' callers, which ends the job soon, and of any threads, which ends it after the limit.
  Circle callers_circle() const;
  Circle any_circle() const;
  Status check_circles();
  Status entangled(const Circle& circle, const char* limit) const;
  std::string place() const;

  Group& group_;
  Waits& shown_;
  std::atomic<Wait>* const callers_wait_;  ///< in shown_, or nullptr
  const int own_;                          ///< the job's number of this rank
  const std::string what_;
  LookedAt looked_at_;
  const Clock::time_point since_ = Clock::now();
  Wait wait_;
  Duration next_warning_;
  std::optional<Question> question_;  ///< where the awaited rank is, for a warning that is due
  Duration asked_at_{};
  int rank_ = -1;
  uint32_t heartbeat_ = 0;
  // when, in the time of looked_at_
  Duration last_sign_{};
  Duration suspect_since_ = Duration::max();
  Circle circle_;  ///< as it was first seen
  Duration circle_since_{};
  Duration lasting_since_ = Duration::max();
};

}  // namespace tarantella::collective
