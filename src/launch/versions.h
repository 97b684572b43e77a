#pragma once
// Which Python a job would run, and whether its package is of the same version as this launcher.

#include <string>

#include "launch/command.h"
#include "launch/environment.h"

namespace tarantella::launch {

struct Versions {
  std::string python;      ///< "3.11.2"; empty if the program is not a Python that answers
  std::string tarantella;  ///< of the package that it would import; empty if it has none
};

/// Asks the program of `command`, if its name begins with "python". Blocks for at most ten seconds.
Versions ask_python(const Command& command, const Environment& environment);

/// What is wrong with them, and the cure; empty if nothing is. Pure.
std::string complaint(const Versions& versions);

}  // namespace tarantella::launch
