#pragma once
// Steps of a plan that a rank takes part in without data: it submits zeros.

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/plan.h"

namespace tarantella::engine {

/// From its creation until stop(), submits zeros for every tensor of a plan, and submits them again once they are
/// summed. So this rank may begin a step before the others do. How many steps it has begun when it stops depends on
/// timing: the ranks that stop choose one number of steps, and finish() submits the zeros that are missing up to it.
/// Meanwhile nobody else may submit a tensor of the plan on this rank, and none may be under way at the creation.
/// Thread-safe.
class ZeroContributions {
 public:
  explicit ZeroContributions(std::shared_ptr<Plan> plan);
  /// Blocks until a submit in progress has returned. Does not wait for the sums of what was submitted; the ranks sum it
  /// nevertheless.
  ~ZeroContributions();
  ZeroContributions(const ZeroContributions&) = delete;
  ZeroContributions& operator=(const ZeroContributions&) = delete;

  /// In how many steps of the plan this rank had submitted each tensor when this was created.
  const std::vector<uint64_t>& before() const { return before_; }
  /// Submits no more. Returns in how many steps of the plan this rank has submitted each tensor, or another one of its
  /// bucket. Does not block.
  std::vector<uint64_t> stop();
  /// Once, after stop(): submits zeros until this rank was in steps[i] steps with each tensor i, and blocks until all
  /// are summed or the plan has failed. Tensors of a bucket have the same number. Errors: those of Plan::submit() and
  /// of its Done.
  Status finish(const std::vector<uint64_t>& steps);

 private:
  class Submitter;

  const std::shared_ptr<Submitter> submitter_;  ///< since a Done may come later than the destructor
  const std::vector<uint64_t> before_;
  std::thread submits_;
};

}  // namespace tarantella::engine
