#pragma once
// The launcher's last lines and exit code.

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "launch/failures.h"
#include "launch/process.h"
#include "launch/shutdown.h"

namespace tarantella::launch {

/// All that is known about a job that has ended. Owns nothing, except copies.
struct Evidence {
  const Status& start_error;  ///< why a rank could not be started; ok if all were
  const std::optional<ExecFailure>& exec_failure;
  const std::string& program;
  const Shutdown& shutdown;
  const Failures& failures;
  std::function<std::string(int rank)> last_words;  ///< what Streams has kept of the rank's stderr
  bool shows_all_errors = false;                    ///< whether stderr of every rank was shown
  std::string host;
  bool is_part = false;  ///< more ranks ran on other hosts
};

struct Verdict {
  int code = 0;            ///< the launcher's exit code
  int signal = 0;          ///< the signal by which the launcher should end instead; 0: none
  std::string words = {};  ///< whole lines for stderr; empty if all ranks ended well
};

/// The verdict names one cause: the error that kept the job from starting, else the signal to the launcher, else the
/// rank that failed first. Pure.
Verdict verdict_on(const Evidence& evidence);

/// The exit code of a job whose output could not be written: `error` is Sink::error() of stdout. Says what was lost. A
/// reader that is gone, as of `| head`, is no failure.
int code_with_output(int code, int error);

}  // namespace tarantella::launch
