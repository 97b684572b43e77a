#include "runtime/topology/sockets.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "base/number.h"

namespace tarantella::runtime {
namespace {

namespace fs = std::filesystem;

int number_in(const fs::path& file, int otherwise) {
  std::ifstream in(file);
  int number = 0;
  return in >> number ? number : otherwise;
}

/// The number in a name such as "node3"; -1 for another name.
int node_named(std::string_view name) {
  constexpr std::string_view kPrefix = "node";
  int node = -1;
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  return to_number(name, node) ? node : -1;
}

void add_memory_nodes(const fs::path& cpu, std::set<int>& nodes) {
  std::error_code error;
  for (fs::directory_iterator entry(cpu, error), end; !error && entry != end; entry.increment(error)) {
    const int node = node_named(entry->path().filename().native());
    if (node >= 0) nodes.insert(node);
  }
}

}  // namespace

std::vector<Socket> sockets_of(const std::vector<int>& allowed, const std::string& sys_root) {
  struct Parts {
    std::vector<int> cpus;
    std::set<int> cores, nodes;
  };
  std::map<int, Parts> packages;
  for (const int cpu : allowed) {
    const fs::path folder = fs::path(sys_root) / "devices/system/cpu" / text("cpu", cpu);
    Parts& parts = packages[number_in(folder / "topology/physical_package_id", 0)];
    parts.cpus.push_back(cpu);
    parts.cores.insert(number_in(folder / "topology/thread_siblings_list", cpu));  // the first of the list
    add_memory_nodes(folder, parts.nodes);
  }
  std::vector<Socket> sockets;
  for (auto& [package, parts] : packages) {
    std::sort(parts.cpus.begin(), parts.cpus.end());
    sockets.push_back({std::move(parts.cpus),
                       static_cast<int>(parts.cores.size()),
                       {parts.nodes.begin(), parts.nodes.end()}});
  }
  return sockets;
}

Status bind_memory_to(const std::vector<int>& nodes) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  const size_t most = static_cast<size_t>(*std::max_element(nodes.begin(), nodes.end())) + 1;
  std::vector<unsigned long> mask(most / kBits + 1, 0);
  for (const int node : nodes) {
    const auto index = static_cast<size_t>(node);
    mask[index / kBits] |= 1UL << (index % kBits);
  }
  // The kernel reads one bit less than it is told.
  if (::syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), most + 1) != 0) {
    return Status::system("set_mempolicy", errno);
  }
  return {};
}

}  // namespace tarantella::runtime
