#include "runtime/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

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

/// The tightest remaining room in the cgroup folder `path` below `mount` and its parents.
uint64_t cgroup_room(const std::string& mount, std::string path, const char* limit, const char* usage) {
  uint64_t room = kUnlimited;
  while (true) {
    const auto most = read_number(mount + path + "/" + limit);
    const auto used = read_number(mount + path + "/" + usage);
    if (most && used) room = std::min(room, *most > *used ? *most - *used : 0);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return room;
    path.resize(slash);
  }
}

}  // namespace

uint64_t available_memory(const std::string& root) {
  uint64_t room = meminfo_available(root);
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // hierarchy:controllers:path
    std::istringstream fields(line);
    std::string hierarchy, controllers, path;
    std::getline(fields, hierarchy, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      room = std::min(room, cgroup_room(root + "/sys/fs/cgroup", path, "memory.max", "memory.current"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      room = std::min(room, cgroup_room(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes"));
    }
  }
  return room;
}

}  // namespace tarantella::runtime
