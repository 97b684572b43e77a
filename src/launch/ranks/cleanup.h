#pragma once
// tarantella --cleanup: ends what killed jobs have left on this machine.

#include "launch/cli/options.h"

namespace tarantella::launch {

/// Lists the processes of this user's recorded jobs whose launchers have gone, asks on the terminal, unless --force is
/// given, and kills them. Jobs with a launcher are named and left alone; records of jobs of which nothing is left are
/// removed. With a script, only its jobs. Knows processes by what was recorded (see job_record.h) and by the job
/// marker that they inherit, never by name. Returns the exit code: 0 if nothing is left. Blocks while it asks, then for
/// seconds.
int clean_up(const Options& options);

}  // namespace tarantella::launch
