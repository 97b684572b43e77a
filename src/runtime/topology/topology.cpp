#include "runtime/topology/topology.h"

#include <algorithm>
#include <cerrno>

#include "runtime/cpu_mask.h"

namespace tarantella::runtime {

Result<std::vector<int>> allowed_cpus() {
  CpuMask mask;
  if (!mask.read()) return Status::system("sched_getaffinity", errno);
  return mask.cpus();
}

Status bind_to(const std::vector<int>& cpus) {
  CpuMask mask{};
  for (const int cpu : cpus) mask.add(static_cast<size_t>(cpu));
  if (!mask.bind()) return Status::system("sched_setaffinity", errno);
  return {};
}

std::vector<CoreShare> split_evenly(const std::vector<std::vector<int>>& cores, int ranks) {
  const size_t count = cores.size();
  const auto parts = static_cast<size_t>(ranks);
  std::vector<CoreShare> shares(parts);
  for (size_t rank = 0; rank < parts; ++rank) {
    const size_t first = rank * count / parts;
    const size_t last = std::max(first + 1, (rank + 1) * count / parts);
    CoreShare& share = shares[rank];
    for (size_t core = first; core < last && core < count; ++core) {
      share.cpus.insert(share.cpus.end(), cores[core].begin(), cores[core].end());
      ++share.cores;
    }
    std::sort(share.cpus.begin(), share.cpus.end());
  }
  return shares;
}

}  // namespace tarantella::runtime
