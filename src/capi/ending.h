#pragma once
// For ranks that our launcher has not started, which would do both: ends a rank whose job has failed, and chooses the
// exit code with which SIGTERM ends it.

#include "base/clock.h"
#include "base/status.h"
#include "engine/context.h"

namespace tarantella::capi {

/// See tnt_end_with_job(). One per process.
class Ending final : private engine::Progressable {
 public:
  /// `context` must outlive it.
  explicit Ending(engine::Context& context);
  ~Ending() override;
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  PollHint advance() override;
  PollHint answer_sigterm();
  bool has_failed();
  /// Does not return.
  void end();

  engine::Context& context_;
  Clock::time_point failed_ = Clock::time_point::max();
  Clock::time_point signalled_ = Clock::time_point::max();
  bool sent_sigterm_ = false;
};

/// See tnt_on_sigterm(). Errors: kSystem.
Status on_sigterm(int exit_code);

}  // namespace tarantella::capi
