#pragma once
// The launcher's last lines and exit code.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cli/restart_options.h"
#include "launch/ending/failures.h"
#include "launch/ending/shutdown.h"
#include "launch/system/process.h"

namespace tarantella::launch {

/// All that is known about a job that has ended. Owns nothing, except copies.
struct EndedJob {
  const Status& start_error;  ///< why a rank could not be started; ok if all were
  const std::optional<ExecFailure>& exec_failure;
  const std::string& program;
  const Shutdown& shutdown;
  const Failures& failures;
  std::function<std::string(int rank)> stderr_excerpt;  ///< see Streams::stderr_excerpt()
  bool shows_all_errors = false;                        ///< whether stderr of every rank was shown
  std::string host;
  bool has_ranks_elsewhere = false;
};

struct JobResult {
  int code = 0;              ///< the launcher's exit code
  int signal = 0;            ///< the signal by which the launcher should end instead; 0: none
  std::string message = {};  ///< whole lines for stderr; empty if all ranks ended well
  FailureKind failure = FailureKind::kNone;
  std::string cause = {};                    ///< equal for equal failures
  std::vector<std::string> lost_hosts = {};  ///< of kHost: that do not answer
  bool started = true;      ///< false: the ranks were not started, since hosts did not answer
  bool progressed = false;  ///< a snapshot or an epoch was completed
};

/// The result of a job that signal `number` to the launcher has ended. Pure.
JobResult interrupted(int number);

/// The result names one cause: the error that kept the job from starting, else the signal to the launcher, else the
/// rank that failed first. Pure.
JobResult result_of(const EndedJob& job);

}  // namespace tarantella::launch
