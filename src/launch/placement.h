#pragma once
// How many ranks are started, and on which GPUs and cores. Decided before anything runs.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "runtime/topology/gpus.h"
#include "runtime/topology/topology.h"

namespace tarantella::launch {

struct Placement {
  int ranks = 1;
  std::vector<std::string> gpus;          ///< one per rank; empty: all ranks run on the CPU
  std::vector<runtime::CoreShare> cores;  ///< one per rank; empty: no rank is bound (always so with one rank)
  std::vector<std::string> warnings;      ///< for the user, without "WARNING:"
};

/// The number of ranks and their GPUs; `cores` stays empty. Pure.
Placement place_on_gpus(const Options& options, const runtime::Gpus& gpus);

/// Divides the cores of this process among the ranks. On an error it binds no rank and adds a warning.
void place_on_cores(Placement& placement);

}  // namespace tarantella::launch
