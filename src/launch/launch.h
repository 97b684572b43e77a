#pragma once
// A whole job: from the options to the exit code.

#include "launch/cli/options.h"

namespace tarantella::launch {

/// Decides what runs where, starts the ranks, blocks until they have ended, and returns the launcher's exit code. With
/// --dry-run it prints what would be started instead. Reads the environment; prints errors on stderr. If a signal ended
/// the job, this process dies of that signal and the call does not return. Call it once, on the main thread.
int launch(Options options);

}  // namespace tarantella::launch
