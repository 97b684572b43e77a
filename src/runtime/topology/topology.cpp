#include "runtime/topology/topology.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace tarantella::runtime {
namespace {

// Kernels may know more than the 1024 CPUs of a plain cpu_set_t.
constexpr int kMostCpus = 16384;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

CpuSet empty_set() {
  CpuSet set(CPU_ALLOC(kMostCpus));
  if (set) CPU_ZERO_S(CPU_ALLOC_SIZE(kMostCpus), set.get());
  return set;
}

}  // namespace

Result<std::vector<int>> allowed_cpus() {
  const CpuSet set = empty_set();
  const size_t size = CPU_ALLOC_SIZE(kMostCpus);
  if (!set || sched_getaffinity(0, size, set.get()) != 0) return Status::system("sched_getaffinity", errno);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<size_t>(cpu), size, set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

Status bind_to(const std::vector<int>& cpus) {
  const CpuSet set = empty_set();
  const size_t size = CPU_ALLOC_SIZE(kMostCpus);
  if (!set) return Status::system("CPU_ALLOC", ENOMEM);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), size, set.get());
  if (sched_setaffinity(0, size, set.get()) != 0) return Status::system("sched_setaffinity", errno);
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
