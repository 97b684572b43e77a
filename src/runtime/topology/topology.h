#pragma once
// Which cores of this machine each local rank runs on.

#include <vector>

#include "base/status.h"

namespace tarantella::runtime {

/// The hardware threads one rank is bound to, in ascending order, and how many cores they make up.
struct CoreShare {
  std::vector<int> cpus;
  int cores = 0;
};

/// The hardware threads this process may use: its affinity mask, which the kernel keeps inside its cgroup's
/// cpuset.
Result<std::vector<int>> allowed_cpus();

/// One share for each of `ranks` (>= 1) local ranks, out of `allowed` (not empty) only. Shares are whole
/// cores, close together, disjoint and covering `allowed`; with more ranks than cores, rank i gets core
/// i*cores/ranks. The same arguments on the same machine give the same shares. Takes about a millisecond.
std::vector<CoreShare> share_cores(const std::vector<int>& allowed, int ranks);

/// Binds the calling thread (a process that is about to exec) to `cpus`.
Status bind_to(const std::vector<int>& cpus);

/// The even split that implementations of share_cores fall back to. `cores` lists the hardware threads of each core,
/// with neighbouring cores next to each other.
std::vector<CoreShare> split_evenly(const std::vector<std::vector<int>>& cores, int ranks);

}  // namespace tarantella::runtime
