#pragma once
// Short answers of other programs.

#include <string>

#include "base/clock.h"
#include "launch/system/environment.h"
#include "launch/system/program.h"

namespace tarantella::launch {

/// The first bytes, some 4 KiB, that the command prints on stdout; with `with_stderr` also on stderr. It is killed when
/// it has closed them, or has printed as much, or after `timeout`, for which this blocks. Empty if it cannot start.
std::string run_program(const Command& command, const Environment& environment, Duration timeout,
                        bool with_stderr = false);

}  // namespace tarantella::launch
