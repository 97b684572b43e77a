#pragma once
// What will be started: how many ranks, on which GPUs and cores. Decided before anything runs.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "runtime/topology/gpus.h"
#include "runtime/topology/topology.h"

namespace tarantella::launch {

struct Placement {
  int ranks = 1;
  std::vector<std::string> gpus;          ///< one a rank; empty: all ranks run on the CPU's cores
  std::vector<runtime::CoreShare> cores;  ///< one a rank; empty: no rank is bound (always so with one rank)
  std::vector<std::string> warnings;      ///< for the user, without "WARNING:"
};

/// The number of ranks and their GPUs; `cores` stays empty. Pure.
Placement place_on_gpus(const Options& options, const runtime::Gpus& gpus);

/// Shares this process's cores among the ranks. On an error no rank is bound, and a warning says so.
void place_on_cores(Placement& placement);

}  // namespace tarantella::launch
