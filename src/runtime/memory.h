#pragma once
// How much memory this process may still use: a memfd of any size can be "had", and kills the job later.

#include <cstdint>
#include <string>

namespace tarantella::runtime {

/// Bytes that can be used before the machine swaps or the cgroup (v1 or v2, this process's and its
/// parents') ends the process; UINT64_MAX where nothing can be read. `root` replaces "/" in tests.
uint64_t available_memory(const std::string& root = "");

}  // namespace tarantella::runtime
