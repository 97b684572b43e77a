#pragma once
// Where the limits stand that a container or a batch system has set for this process.

#include <string>
#include <vector>

namespace tarantella::runtime {

/// The folders in which `controller`, such as "memory", may have files about this process: those of its cgroup and of
/// all cgroups around it, v1 and v2. Some do not exist: in a container a cgroup's path may be the host's. `root`
/// replaces "/" in tests.
std::vector<std::string> cgroup_folders(const std::string& controller, const std::string& root = "");

}  // namespace tarantella::runtime
