#include "runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>

#include "runtime/cgroup.h"

namespace tarantella::runtime {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;  // "max" is not a number: no limit
  return std::nullopt;
}

uint64_t meminfo_available(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key;
  uint64_t kilobytes = 0;
  std::string rest;
  while (file >> key >> kilobytes && std::getline(file, rest)) {
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return kUnlimited;
}

/// Memory that the kernel can reclaim from the cgroup: pages that only cache files.
uint64_t file_cache(const std::string& folder, const std::string& prefix) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  uint64_t value = 0;
  uint64_t cached = 0;
  while (file >> key >> value) {
    if (key == prefix + "inactive_file" || key == prefix + "active_file") cached += value;
  }
  return cached;
}

/// What the limit of one cgroup leaves; `limit` and `usage` are names of files in its folder.
uint64_t cgroup_available(const std::string& folder, const char* limit, const char* usage,
                          const char* stat_prefix) {
  const auto most = read_number(folder + "/" + limit);
  const auto used = read_number(folder + "/" + usage);
  if (!most || !used) return kUnlimited;
  const uint64_t needed = *used - std::min(*used, file_cache(folder, stat_prefix));
  return *most > needed ? *most - needed : 0;
}

}  // namespace

uint64_t available_memory(const std::string& root) {
  uint64_t available = meminfo_available(root);
  for (const std::string& folder : cgroup_folders("memory", root)) {
    available = std::min(available, cgroup_available(folder, "memory.max", "memory.current", ""));
    available = std::min(
        available, cgroup_available(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"));
  }
  return available;
}

Fd make_memfd(const char* name, unsigned flags) {
  // some machines refuse a file without this seal, and kernels before Linux 6.3 do not know it
  constexpr unsigned kNoExecSeal = 8;
  Fd file(::memfd_create(name, flags | kNoExecSeal));
  if (file.valid() || errno != EINVAL) return file;
  return Fd(::memfd_create(name, flags));
}

}  // namespace tarantella::runtime
