#include "launch/hosts/host_assignments.h"

#include <algorithm>

namespace tarantella::launch {
namespace {

/// The most ranks that each host takes when -n deals them out.
std::vector<int> capacities_for(int ranks, const std::vector<Host>& hosts) {
  const auto all = static_cast<size_t>(ranks);
  std::vector<int> capacities;
  for (size_t index = 0; index < hosts.size(); ++index) {
    const size_t even = all / hosts.size() + (index < all % hosts.size() ? 1 : 0);
    capacities.push_back(hosts[index].slots.value_or(static_cast<int>(even)));
  }
  return capacities;
}

}  // namespace

std::vector<HostAssignment> assignments_without(const std::vector<HostAssignment>& assignments,
                                                const std::vector<std::string>& hosts) {
  std::vector<HostAssignment> left;
  for (HostAssignment assignment : assignments) {
    if (std::find(hosts.begin(), hosts.end(), assignment.host) != hosts.end()) continue;
    assignment.first_rank = left.empty() ? 0 : left.back().first_rank + left.back().ranks;
    left.push_back(assignment);
  }
  return left;
}

int default_ranks(const Options& options, size_t gpus, int fallback) {
  return gpus > 0 && !options.no_gpu ? static_cast<int>(std::min<size_t>(gpus, kMostRanks)) : fallback;
}

Result<std::vector<HostAssignment>> assign_ranks(const std::vector<Host>& hosts, const Options& options,
                                                 int default_count) {
  const std::vector<int> capacities = capacities_for(options.ranks.value_or(0), hosts);
  std::vector<HostAssignment> assignments;
  int next = 0;
  for (size_t index = 0; index < hosts.size(); ++index) {
    const Host& host = hosts[index];
    const int wanted = options.ranks            ? std::min(capacities[index], *options.ranks - next)
                       : options.ranks_per_node ? *options.ranks_per_node
                                                : host.slots.value_or(default_count);
    if (host.slots && wanted > *host.slots) {
      return Status(Code::kInvalidArgument,
                    text(wanted, " ranks per node are more than the ", *host.slots, " slots of host '",
                         host.name, "'; use a smaller --n-per-node or more slots"));
    }
    if (wanted > 0) assignments.push_back({host.name, next, wanted});
    next += wanted;
  }
  if (options.ranks && next < *options.ranks) {
    return Status(Code::kInvalidArgument,
                  text(*options.ranks, " ranks are more than the ", next, " slots of ",
                       hosts.size() == 1 ? "the host" : text("the ", hosts.size(), " hosts"),
                       "; use a smaller -n, or more hosts or slots"));
  }
  return assignments;
}

}  // namespace tarantella::launch
