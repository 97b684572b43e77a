#pragma once
// Which Python a job would run, and whether its package is of the same version as this launcher.

#include <string>

#include "launch/system/environment.h"
#include "launch/system/program.h"

namespace tarantella::launch {

struct Versions {
  std::string python;      ///< "3.11.2"; empty if the program is not a Python that answers
  std::string tarantella;  ///< of the package that it would import; empty if it has none
};

/// Asks the program of `command`, if its name begins with "python". Blocks for at most ten seconds.
Versions query_versions(const Command& command, const Environment& environment);

/// A warning if they differ or one is missing, with the cure; else empty. Pure.
std::string version_warning(const Versions& versions);

}  // namespace tarantella::launch
