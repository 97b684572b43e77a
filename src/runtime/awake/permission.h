#pragma once
// Where a core may be kept from going idle: only where this takes time from nobody.

#include <string>
#include <vector>

#include "base/status.h"

namespace tarantella::runtime {

/// Whether a thread may keep each of `cpus`, to which this process is bound, from going idle. kSystem with the reason
/// where a cgroup around this process has a CPU quota, or where a hardware thread beside one of `cpus` is not among
/// them, or may not be. `root` replaces "/" in tests.
Status permit_awake(const std::vector<int>& cpus, const std::string& root = "");

}  // namespace tarantella::runtime
