#include "launch/hosts/layout.h"

#include <algorithm>

namespace tarantella::launch {
namespace {

/// The most ranks that each host takes when -n deals them out.
std::vector<int> room_for(int ranks, const std::vector<Host>& hosts) {
  const auto all = static_cast<size_t>(ranks);
  std::vector<int> room;
  for (size_t index = 0; index < hosts.size(); ++index) {
    const size_t even = all / hosts.size() + (index < all % hosts.size() ? 1 : 0);
    room.push_back(hosts[index].slots.value_or(static_cast<int>(even)));
  }
  return room;
}

}  // namespace

Result<std::vector<HostShare>> ranks_on_hosts(const std::vector<Host>& hosts, const Options& options,
                                              int usual) {
  const std::vector<int> room = room_for(options.ranks.value_or(0), hosts);
  std::vector<HostShare> shares;
  int next = 0;
  for (size_t index = 0; index < hosts.size(); ++index) {
    const Host& host = hosts[index];
    const int wanted = options.ranks            ? std::min(room[index], *options.ranks - next)
                       : options.ranks_per_node ? *options.ranks_per_node
                                                : host.slots.value_or(usual);
    if (host.slots && wanted > *host.slots) {
      return Status(Code::kInvalidArgument,
                    text(wanted, " ranks per node are more than the ", *host.slots, " slots of host '",
                         host.name, "'; use a smaller --n-per-node or more slots"));
    }
    if (wanted > 0) shares.push_back({host.name, next, wanted});
    next += wanted;
  }
  if (options.ranks && next < *options.ranks) {
    return Status(Code::kInvalidArgument,
                  text(*options.ranks, " ranks are more than the ", next, " slots of ",
                       hosts.size() == 1 ? "the host" : text("the ", hosts.size(), " hosts"),
                       "; use a smaller -n, or more hosts or slots"));
  }
  return shares;
}

}  // namespace tarantella::launch
