#pragma once
// How many ranks each host gets.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/cli/options.h"
#include "launch/hosts/hosts.h"

namespace tarantella::launch {

/// Consecutive ranks on one host.
struct HostAssignment {
  std::string host;
  int first_rank = 0;
  int ranks = 0;

  bool operator==(const HostAssignment&) const = default;
};

/// The assignments without those of these hosts; the ranks are numbered anew. Pure.
std::vector<HostAssignment> assignments_without(const std::vector<HostAssignment>& assignments,
                                                const std::vector<std::string>& hosts);

/// The number of ranks on a host without options about it: one for each of its `gpus` if ranks may use them,
/// else `fallback`. Pure.
int default_ranks(const Options& options, size_t gpus, int fallback);

/// The ranks of `hosts` (at least one). --n-per-node gives each host as many. -n fills host by host up to the slots;
/// where no slots are given, it deals the ranks out evenly, and hosts without ranks are left out. Without either, each
/// host gets its slots, or else `default_count` ranks. kInvalidArgument, with one line that names both numbers, if
/// there are more ranks than slots. Pure.
Result<std::vector<HostAssignment>> assign_ranks(const std::vector<Host>& hosts, const Options& options,
                                                 int default_count);

}  // namespace tarantella::launch
