// share_cores without hwloc: an even split over packages and cores as /sys names them.

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "runtime/topology/topology.h"

namespace tarantella::runtime {
namespace {

/// The number in one of the kernel's topology files of `cpu`, or `otherwise` if there is none.
int number_in(int cpu, const char* file, int otherwise) {
  std::ifstream in(text("/sys/devices/system/cpu/cpu", cpu, "/topology/", file));
  int number = 0;
  return in >> number ? number : otherwise;
}

}  // namespace

std::vector<CoreShare> share_cores(const std::vector<int>& allowed, int ranks) {
  std::map<std::pair<int, int>, std::vector<int>> by_core;
  for (const int cpu : allowed) {
    const int package = number_in(cpu, "physical_package_id", 0);
    const int first_sibling = number_in(cpu, "thread_siblings_list", cpu);
    by_core[{package, first_sibling}].push_back(cpu);
  }
  std::vector<std::vector<int>> cores;
  for (auto& entry : by_core) cores.push_back(std::move(entry.second));
  return split_evenly(cores, ranks);
}

}  // namespace tarantella::runtime
