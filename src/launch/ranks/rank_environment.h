#pragma once
// The environment of a rank: that of the job, and what is set for this rank alone.

#include <string>

#include "launch/cli/job_variables.h"
#include "launch/cli/options.h"
#include "launch/ranks/placement.h"
#include "launch/system/environment.h"

namespace tarantella::launch {

/// What is set for rank `rank` on top of `environment`, which went through remove_outer_job_variables(). `folder`
/// becomes the first entry of PATH.
EnvironmentOverrides overrides_for(int rank, const Placement& placement, const Options& options,
                                   const std::string& job_id, const std::string& folder,
                                   const Environment& environment);

/// Whether the user has not asked for the notes that TensorFlow logs: TF_CPP_MIN_LOG_LEVEL is not set, or above 0.
bool drops_startup_lines(const Environment& environment);

}  // namespace tarantella::launch
