#include "launch/ranks/placement.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tarantella::launch {
namespace {

std::string count_of_gpus(size_t count) { return count == 1 ? "1 GPU" : text(count, " GPUs"); }

std::string count_of_ranks(size_t count) { return count == 1 ? "1 rank" : text(count, " ranks"); }

/// The NUMA nodes of all sockets that have a hardware thread of `share`.
std::vector<int> numa_nodes_of(const runtime::CoreShare& share, const std::vector<runtime::Socket>& sockets) {
  std::set<int> nodes;
  for (const runtime::Socket& socket : sockets) {
    const bool used = std::any_of(share.cpus.begin(), share.cpus.end(), [&](int cpu) {
      return std::binary_search(socket.cpus.begin(), socket.cpus.end(), cpu);
    });
    if (used) nodes.insert(socket.memory_nodes.begin(), socket.memory_nodes.end());
  }
  return {nodes.begin(), nodes.end()};
}

void place_on_numa_nodes(Placement& placement, const std::vector<runtime::Socket>& sockets) {
  for (const runtime::CoreShare& share : placement.cores) {
    placement.numa_nodes.push_back(numa_nodes_of(share, sockets));
    if (!placement.numa_nodes.back().empty()) continue;
    placement.numa_nodes.clear();
    placement.warnings.push_back("memory is not pinned to sockets: this kernel reports no NUMA nodes");
    return;
  }
}

}  // namespace

Placement place(int ranks, bool explicit_count, const Options& options, const runtime::Gpus& gpus) {
  Placement placement = place_on_gpus(ranks, explicit_count, options, gpus);
  place_on_cores(placement, options);
  if (std::string warning = oversubscription_warning(placement); !warning.empty())
    placement.warnings.push_back(std::move(warning));
  return placement;
}

Placement place_on_gpus(int ranks, bool explicit_count, const Options& options, const runtime::Gpus& gpus) {
  Placement placement;
  placement.ranks = ranks;
  const size_t found = options.no_gpu ? 0 : gpus.ids.size();
  const bool may_warn = !options.no_gpu && gpus.driver && !gpus.hidden_by_user;
  const auto wanted = static_cast<size_t>(placement.ranks);
  if (wanted <= found) {
    placement.gpus.assign(gpus.ids.begin(), gpus.ids.begin() + placement.ranks);
    if (may_warn && !explicit_count && wanted < found) {
      const char* cure = options.hostfile ? "slots=" : "--n-per-node ";
      placement.warnings.push_back(text(count_of_ranks(wanted), wanted == 1 ? " uses " : " use ", wanted,
                                        " of ", count_of_gpus(found), ": ", cure, found,
                                        options.hostfile ? " in the hostfile" : "", " uses all, ", cure,
                                        wanted, " hides this warning"));
    }
  } else if (may_warn && !explicit_count && found == 0) {
    placement.warnings.push_back(
        text("no GPU found: ", wanted == 1 ? "one rank runs" : text(wanted, " ranks run"),
             " on the CPU; -n starts more, --no-gpu hides this warning"));
  } else if (may_warn) {
    placement.warnings.push_back(
        text("there ", found == 1 ? "is " : "are ", count_of_gpus(found), " for ", count_of_ranks(wanted),
             ": all run on the CPU; a smaller -n uses the GPUs, --no-gpu hides this warning"));
  }
  return placement;
}

void place_on_cores(Placement& placement, const Options& options) {
  if (placement.ranks == 1 && !options.pin_to_socket && !options.pin_memory_to_socket) return;
  const Result<std::vector<int>> allowed = runtime::allowed_cpus();
  if (!allowed.ok() || allowed.value().empty()) {
    placement.warnings.push_back(text("ranks are not bound to cores: ", allowed.status().message()));
    return;
  }
  const std::vector<runtime::Socket> sockets = runtime::sockets_of(allowed.value(), "/sys");
  for (const runtime::Socket& socket : sockets) {
    placement.cores_here += socket.cores;
    placement.threads_here += static_cast<int>(socket.cpus.size());
  }
  placement.cores = options.pin_to_socket ? on_sockets(sockets, placement.ranks)
                                          : runtime::share_cores(allowed.value(), placement.ranks);
  if (options.pin_memory_to_socket) place_on_numa_nodes(placement, sockets);
}

std::vector<runtime::CoreShare> on_sockets(const std::vector<runtime::Socket>& sockets, int ranks) {
  const size_t count = sockets.size(), all = static_cast<size_t>(ranks);
  std::vector<int> sharing(count, 0);
  for (size_t rank = 0; rank < all; ++rank) ++sharing[rank * count / all];
  std::vector<runtime::CoreShare> shares;
  for (size_t rank = 0; rank < all; ++rank) {
    const size_t index = rank * count / all;
    shares.push_back({sockets[index].cpus, std::max(1, sockets[index].cores / sharing[index])});
  }
  return shares;
}

std::string oversubscription_warning(const Placement& placement) {
  const int cores = placement.cores_here;
  if (cores == 0 || cores >= placement.ranks) return "";
  const bool has_siblings = placement.threads_here > cores;  // which Slurm may count as CPUs
  return text(placement.ranks, " ranks share ", cores, cores == 1 ? " core" : " cores",
              has_siblings ? text(" with ", placement.threads_here, " hardware threads") : "",
              ": use a smaller -n, or more cores (Slurm: --cpus-per-task",
              has_siblings ? ", --hint=nomultithread)" : ")");
}

}  // namespace tarantella::launch
