#pragma once
// Ends a rank whose job has failed, and tells by what SIGTERM ends it, where no launcher of ours does either.

#include "base/clock.h"
#include "base/status.h"
#include "engine/cluster.h"
#include "engine/communicator.h"

namespace tarantella::capi {

/// See tnt_end_with_job(). One per process.
class Ending final : private engine::Driven {
 public:
  /// `cluster` is nullptr in a job on one node. Both must outlive it.
  Ending(engine::Communicator& communicator, engine::Cluster* cluster);
  ~Ending() override;
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  Need advance() override;
  Need answer_sigterm();
  bool has_failed();
  /// Does not return.
  void end();

  engine::Communicator& communicator_;
  engine::Cluster* const cluster_;
  Clock::time_point failed_ = Clock::time_point::max();
  Clock::time_point signalled_ = Clock::time_point::max();
  bool has_told_ = false;
};

/// See tnt_on_sigterm(). Errors: kSystem.
Status on_sigterm(int exit_code);

}  // namespace tarantella::capi
