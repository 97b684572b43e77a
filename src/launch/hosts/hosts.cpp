#include "launch/hosts/hosts.h"

#include "base/status.h"

namespace tarantella::launch {

std::string host_list(const std::vector<Host>& hosts) {
  constexpr size_t kShown = 3;
  std::string list;
  for (size_t index = 0; index < hosts.size() && index < kShown; ++index) {
    list += (index == 0 ? "" : ", ") + hosts[index].name;
  }
  if (hosts.size() > kShown) list += text(" and ", hosts.size() - kShown, " more");
  return list;
}

}  // namespace tarantella::launch
