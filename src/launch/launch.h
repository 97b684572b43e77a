#pragma once
// A job from its options to its exit code.

#include "launch/options.h"

namespace tarantella::launch {

/// Decides what runs where, starts the ranks and returns the exit code of the launcher when they have ended; with
/// --dry-run prints what would be started. Reads the environment, and prints what is wrong. Where a signal has ended
/// the job, this process dies of that signal. Call it once, on the main thread.
int launch(Options options);

}  // namespace tarantella::launch
