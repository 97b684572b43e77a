#pragma once
// What the launcher says at the end of a job, and its exit code.

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "launch/failures.h"
#include "launch/process.h"
#include "launch/shutdown.h"

namespace tarantella::launch {

/// All that is known of a job that has ended. Nothing is owned.
struct Evidence {
  const Status& start_error;  ///< why not all ranks were started
  const std::optional<ExecFailure>& exec_failure;
  const std::string& program;
  const Shutdown& shutdown;
  const Failures& failures;
  std::function<std::string(int rank)> last_words;  ///< what Streams has kept of a rank's stderr
  bool shows_all_errors = false;                    ///< stderr of every rank was shown as it came
  std::string host;
};

struct Verdict {
  int code = 0;            ///< the launcher's exit code
  int signal = 0;          ///< of which it should rather die; 0: none
  std::string words = {};  ///< for stderr: whole lines; empty if all went well
};

/// Names one cause: what kept the job from starting, else the signal to the launcher, else the rank that failed first.
/// Pure.
Verdict verdict_on(const Evidence& evidence);

}  // namespace tarantella::launch
