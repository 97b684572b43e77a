#pragma once
// The defaults of options, from the environment.

#include "launch/cli/job_variables.h"
#include "launch/cli/options.h"
#include "launch/system/environment.h"

namespace tarantella::launch {

/// Adds the variables of -x to `environment`, which went through remove_outer_job_variables(). Then sets each option
/// that is not given, but has a TNT_ variable, from that. Pure.
void apply_option_defaults(Options& options, Environment& environment);

}  // namespace tarantella::launch
