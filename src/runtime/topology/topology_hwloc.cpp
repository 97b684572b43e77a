// share_cores by hwloc: follows packages, NUMA nodes and shared caches.

#include <hwloc.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <set>

#include "runtime/topology/topology.h"

namespace tarantella::runtime {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

/// The machine without I/O devices (slow to find, not needed), restricted to `allowed`; null if hwloc fails.
Topology load(const std::vector<int>& allowed) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  const Bitmap set(hwloc_bitmap_alloc());
  for (const int cpu : allowed) hwloc_bitmap_set(set.get(), static_cast<unsigned>(cpu));
  if (hwloc_topology_restrict(raw, set.get(), 0) != 0) return nullptr;
  return topology;
}

std::vector<int> cpus_of(hwloc_const_bitmap_t set) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) cpus.push_back(cpu);
  return cpus;
}

std::vector<std::vector<int>> cores_in_order(hwloc_topology_t topology) {
  std::vector<std::vector<int>> cores;
  // Some virtual machines show hardware threads but no cores.
  const auto type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, type, core)) != nullptr;) {
    cores.push_back(cpus_of(core->cpuset));
  }
  return cores;
}

/// hwloc_distrib keeps ranks inside a package or NUMA node if it can. It weighs by hardware threads, so
/// cores of two kinds may make it use one core twice: then the answer is empty.
std::vector<CoreShare> distribute(hwloc_topology_t topology, const std::vector<std::vector<int>>& cores,
                                  int ranks) {
  std::vector<hwloc_cpuset_t> raw(static_cast<size_t>(ranks), nullptr);
  hwloc_obj_t root = hwloc_get_root_obj(topology);
  const int core_depth = hwloc_get_type_depth(topology, HWLOC_OBJ_CORE);
  if (hwloc_distrib(topology, &root, 1, raw.data(), static_cast<unsigned>(ranks),
                    core_depth >= 0 ? core_depth : INT_MAX, 0) != 0) {
    return {};
  }
  std::vector<CoreShare> shares;
  std::set<int> used;
  size_t total = 0;
  for (hwloc_cpuset_t set : raw) {
    const Bitmap owner(set);
    CoreShare share{.cpus = cpus_of(set)};
    used.insert(share.cpus.begin(), share.cpus.end());
    total += share.cpus.size();
    share.cores =
        static_cast<int>(std::count_if(cores.begin(), cores.end(), [&](const std::vector<int>& core) {
          return std::binary_search(share.cpus.begin(), share.cpus.end(), core.front());
        }));
    if (share.cores == 0) total = SIZE_MAX / 2;
    shares.push_back(std::move(share));
  }
  if (used.size() != total) return {};
  return shares;
}

}  // namespace

std::vector<CoreShare> share_cores(const std::vector<int>& allowed, int ranks) {
  std::vector<std::vector<int>> cores;
  if (const Topology topology = load(allowed)) {
    cores = cores_in_order(topology.get());
    if (static_cast<size_t>(ranks) <= cores.size()) {
      if (auto shares = distribute(topology.get(), cores, ranks); !shares.empty()) return shares;
    }
  }
  if (cores.empty()) {
    for (const int cpu : allowed) cores.push_back({cpu});
  }
  return split_evenly(cores, ranks);
}

}  // namespace tarantella::runtime
