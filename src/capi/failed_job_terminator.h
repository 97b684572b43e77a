#pragma once
// What our launcher does for its ranks, done by a rank that another program has started: the rank ends once its job has
// failed, and chooses the exit code with which SIGTERM ends it.

#include "base/clock.h"
#include "base/status.h"
#include "engine/context.h"

namespace tarantella::capi {

/// See tnt_end_with_job(). One per process.
class FailedJobTerminator final : private engine::Progressable {
 public:
  /// `context` must outlive it.
  explicit FailedJobTerminator(engine::Context& context);
  ~FailedJobTerminator() override;
  FailedJobTerminator(const FailedJobTerminator&) = delete;
  FailedJobTerminator& operator=(const FailedJobTerminator&) = delete;

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
