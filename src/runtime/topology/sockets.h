#pragma once
// The sockets of this machine, and memory of one of them only.

#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::runtime {

/// The part of a socket (package) that this process may use.
struct Socket {
  std::vector<int> cpus;  ///< hardware threads in ascending order
  int cores = 0;          ///< cores that these threads are of
  std::vector<int>
      memory_nodes;  ///< NUMA nodes of these threads, in ascending order; empty if the kernel tells none
};

/// The sockets of `allowed`, as the kernel numbers them. `sys_root` is normally "/sys"; files that cannot be read count
/// as those of a machine with one socket.
std::vector<Socket> sockets_of(const std::vector<int>& allowed, const std::string& sys_root);

/// Lets the calling thread (a process that is about to exec) take memory from `nodes` (not empty) only.
Status bind_memory_to(const std::vector<int>& nodes);

}  // namespace tarantella::runtime
