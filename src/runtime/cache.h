#pragma once
// Which CPUs share a cache.

#include <cstdint>
#include <string>

#include "runtime/cpu_mask.h"

namespace tarantella::runtime {

/// A number for the last-level cache of the lowest CPU of `cpus`: equal for two CPUs that share it. 0 if the kernel
/// does not say. `root` replaces "/" in tests.
uint64_t last_level_cache(const CpuMask& cpus, const std::string& root = "");

}  // namespace tarantella::runtime
