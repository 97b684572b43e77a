#pragma once
// Short answers of other programs.

#include <string>

#include "base/clock.h"
#include "launch/command.h"
#include "launch/environment.h"

namespace tarantella::launch {

/// The first bytes, some 4 KiB, that the command prints on stdout; with `and_errors` also on stderr. It is killed when
/// it has closed them, or has printed as much, or after `patience`, for which this blocks. Empty if it cannot start.
std::string answer_of(const Command& command, const Environment& environment, Duration patience,
                      bool and_errors = false);

}  // namespace tarantella::launch
