#pragma once
// The options, completed by what the environment says.

#include "launch/environment.h"
#include "launch/options.h"

namespace tarantella::launch {

/// Adds the variables of -x to `user`, an environment after forget_outer_job(), and then completes `options` by
/// `user`'s TNT_ variables, and by what Slurm's tell about GPUs. An option overrides its variable. Pure.
void complete(Options& options, Environment& user);

}  // namespace tarantella::launch
