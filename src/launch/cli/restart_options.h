#pragma once
// The options of restarts: how often, after what, and with how many hosts.

#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "launch/cli/options.h"

namespace tarantella::launch {

/// What a failure was, in the terms of --restart-on. kNone: the job ended well or did not start, a signal to the
/// launcher ended it, or a rank has saved its work and asks for another job.
enum class FailureKind : int { kNone, kException, kKilled, kHost };

/// "killed". Pure; not for kNone.
const char* name_of(FailureKind kind);

struct RestartOptions {
  int max_restarts = 0;  ///< of the whole job
  std::set<FailureKind> kinds = {FailureKind::kKilled, FailureKind::kHost};
  std::optional<int> min_hosts = {};  ///< how many hosts are enough to go on with; unset: all
  Duration host_timeout = 600s;       ///< the wait for a lost host without which there are too few
};

/// The restarts of a job on `hosts` hosts. `options` are completed by the environment. kInvalidArgument, with one line,
/// for values that are not valid or contradict one another. Pure.
Result<RestartOptions> restart_options(const Options& options, size_t hosts);

}  // namespace tarantella::launch
