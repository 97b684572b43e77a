#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tarantella::launch {

/// A machine that a job may use.
struct Host {
  std::string name;
  std::optional<int> slots;  ///< the most ranks on it; unset: not given

  bool operator==(const Host&) const = default;
};

/// "node1, node2, node3 and 5 more".
std::string host_list(const std::vector<Host>& hosts);

}  // namespace tarantella::launch
