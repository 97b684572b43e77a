#include "runtime/cache.h"

#include <fstream>

#include "base/status.h"

namespace tarantella::runtime {

uint64_t last_level_cache(const CpuMask& cpus, const std::string& root) {
  size_t cpu = 0;
  while (cpu + 1 < CpuMask::kCpus && !cpus.has(cpu)) ++cpu;
  uint64_t last = 0;
  for (int index = 0;; ++index) {  // from the nearest cache to the last one
    std::ifstream file(
        text(root, "/sys/devices/system/cpu/cpu", cpu, "/cache/index", index, "/shared_cpu_list"));
    uint64_t lowest = 0;
    if (!(file >> lowest)) return last;
    last = 1 + lowest;
  }
}

}  // namespace tarantella::runtime
