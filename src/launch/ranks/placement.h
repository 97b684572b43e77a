#pragma once
// How many ranks are started on this machine, and on which GPUs, cores and memory. Decided before anything runs.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cli/options.h"
#include "runtime/topology/gpus.h"
#include "runtime/topology/sockets.h"
#include "runtime/topology/topology.h"

namespace tarantella::launch {

struct Placement {
  int ranks = 1;
  std::vector<std::string> gpus;             ///< one per rank; empty: all ranks run on the CPU
  std::vector<runtime::CoreShare> cores;     ///< one per rank; empty: no rank is bound
  std::vector<std::vector<int>> numa_nodes;  ///< of the memory, one per rank; empty: no rank is bound
  int cores_here = 0;                        ///< cores that this process may use; 0: not counted
  int threads_here = 0;                      ///< hardware threads of these cores that it may use
  std::vector<std::string> warnings;         ///< for the user, without "WARNING:"
};

/// Where each of `ranks` runs on this machine, which has `gpus`. Warns of what the user may not expect.
/// `explicit_count`: the user has given the number of ranks.
Placement place(int ranks, bool explicit_count, const Options& options, const runtime::Gpus& gpus);

/// Gives each of `ranks` a GPU if there are enough, else none; the rest stays empty. Pure.
Placement place_on_gpus(int ranks, bool explicit_count, const Options& options, const runtime::Gpus& gpus);

/// Divides the cores of this process among the ranks, and binds them and their memory to sockets as the options say.
/// One rank is bound to a socket only. On an error it binds no rank and adds a warning.
void place_on_cores(Placement& placement, const Options& options);

/// Gives each of `ranks` all cores of one socket; neighbouring ranks share one. Their `cores`, of which threads are
/// made, are the socket's divided by its ranks, at least 1. Pure.
std::vector<runtime::CoreShare> on_sockets(const std::vector<runtime::Socket>& sockets, int ranks);

/// "4 ranks share 2 cores: …" with the cure, if some ranks have no core of their own; else empty. Pure.
std::string oversubscription_warning(const Placement& placement);

}  // namespace tarantella::launch
