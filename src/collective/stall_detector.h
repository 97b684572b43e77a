#pragma once
// The slow path of a wait for another rank: checks, between two sleeps, whether that rank may still come.
//
// A rank that is alive and busy is awaited without limit. The job ends if the awaited rank has died, has left or shows
// no sign of life, or if ranks wait for one another: each shows what it waits for in memory that all see (WaitEdges),
// and a cycle of waits ends the job. Another thread of a rank might resolve a cycle, but not if the
// creator thread (see NodeGroup) of every rank in it waits in one of two ways. It waits exclusively, or it waits for
// gradients and the rank that waits for it does so exclusively. Such a cycle ends the job after options.failure_delay,
// any other after options.stuck_timeout.
//
// Time counts only while this rank checks: if a signal stops the whole job for an hour, no rank was silent.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/active_timer.h"
#include "collective/node_group.h"
#include "collective/source_location.h"
#include "collective/wait_graph.h"

namespace tarantella::collective {

enum class WaitKind {
  kExclusive,  ///< the waiting thread starts nothing else: it is in a blocking call, or the plan is_exclusive()
  kGradients  ///< it may still submit other gradients
};

/// One wait. For one thread.
class StallDetector {
 public:
  /// `of_creator_thread`: whether NodeGroup::creator_thread() waits, or submits the awaited gradients. `what` names the
  /// wait in errors.
  StallDetector(NodeGroup& group, WaitKind kind, bool of_creator_thread, std::string what);
  ~StallDetector();
  StallDetector(const StallDetector&) = delete;
  StallDetector& operator=(const StallDetector&) = delete;

  /// Call it after each poll that found `rank` still awaited. Returns ok while that rank may still come; else fails the
  /// group and returns its first cause. Does not block.
  Status check(int rank);

 private:
  /// The waits of ranks that wait for one another, in order from this rank on; empty if there are none.
  using Cycle = std::vector<WaitEdge>;

  Status dead_or_departed(const std::string& reason);
  void publish(int job_rank);
  void warn(int job_rank);
  /// The chain of waits from `first` on, where next(wait) follows each, if it leads back to this rank; else empty.
  template <typename Next>
  Cycle follow(WaitEdge first, Next next) const;
  /// A cycle of the ranks' creator threads, which ends the job after the failure delay; of any, after the limit.
  Cycle creator_threads_cycle() const;
  Cycle any_cycle() const;
  Status check_cycles();
  Status check_stall(int job_rank);
  Status deadlock(const Cycle& cycle, const char* limit) const;
  std::string place() const;

  NodeGroup& group_;
  WaitEdges& published_;
  std::atomic<WaitEdge>* const creator_edge_;  ///< in published_, or nullptr
  const int own_rank_;                         ///< this rank's number in the job
  const std::string what_;
  ActiveTimer active_;
  const Clock::time_point since_ = Clock::now();
  WaitEdge edge_;
  Duration next_warning_;
  std::optional<SourceLocationQuery> question_;  ///< asked for a warning that is due
  Duration asked_at_{};
  int rank_ = -1;
  uint32_t heartbeat_ = 0;
  // in the time of active_
  Duration last_sign_{};
  Duration suspect_since_ = Duration::max();
  Cycle cycle_;  ///< as first seen
  Duration cycle_since_{};
  Duration lasting_since_ = Duration::max();
};

}  // namespace tarantella::collective
