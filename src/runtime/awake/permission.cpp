#include "runtime/awake/permission.h"

#include <algorithm>
#include <fstream>

#include "runtime/cgroup.h"

namespace tarantella::runtime {
namespace {

/// The first file that sets a quota; empty if there is none.
std::string quota_file(const std::string& root) {
  for (const std::string& folder : cgroup_folders("cpu", root)) {
    for (const char* name : {"/cpu.max", "/cpu.cfs_quota_us"}) {
      std::ifstream file(folder + name);
      long long quota = 0;  // "max" in v2 and -1 in v1: none
      if (file >> quota && quota >= 0) return folder + name;
    }
  }
  return "";
}

/// The hardware threads of a core, as in "0-1,8"; empty if that is not known.
std::vector<int> threads_beside(int cpu, const std::string& root) {
  std::ifstream file(text(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
  std::vector<int> threads;
  int first = 0;
  while (file >> first) {
    int last = first;
    if (file.peek() == '-') file.ignore() >> last;
    for (int each = first; each <= last; ++each) threads.push_back(each);
    file.ignore();
  }
  return threads;
}

}  // namespace

Status permit_awake(const std::vector<int>& cpus, const std::string& root) {
  if (const std::string file = quota_file(root); !file.empty()) {
    return {Code::kSystem, text("the cgroup has a CPU quota (", file, ")")};
  }
  for (const int cpu : cpus) {
    const std::vector<int> threads = threads_beside(cpu, root);
    if (threads.empty())
      return {Code::kSystem, text("the hardware threads beside CPU ", cpu, " are not known")};
    for (const int each : threads) {
      if (std::find(cpus.begin(), cpus.end(), each) != cpus.end()) continue;
      return {Code::kSystem, text("CPU ", each, ", on the same core as CPU ", cpu, ", is not this rank's")};
    }
  }
  return {};
}

}  // namespace tarantella::runtime
