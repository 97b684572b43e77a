#pragma once
// How many ranks each host gets.

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/hosts/hosts.h"
#include "launch/options.h"

namespace tarantella::launch {

/// Consecutive ranks on one host.
struct HostShare {
  std::string host;
  int first = 0;
  int ranks = 0;

  bool operator==(const HostShare&) const = default;
};

/// The ranks of `hosts` (at least one). --n-per-node gives each host as many. -n fills host by host up to the slots;
/// where nobody said slots, it deals the ranks out evenly, and hosts without ranks are left out. Without either, each
/// host gets its slots, or else `usual` ranks. kInvalidArgument, with one line that names both numbers, if there are
/// more ranks than slots. Pure.
Result<std::vector<HostShare>> ranks_on_hosts(const std::vector<Host>& hosts, const Options& options,
                                              int usual);

}  // namespace tarantella::launch
