#pragma once
// The memory that this process may still use. The kernel grants a memfd of any size, and kills the job when it is used.

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace tarantella::runtime {

/// Bytes that can be used before the machine swaps or the cgroup (v1 or v2, this process's and its
/// parents') ends the process; UINT64_MAX if nothing can be read. `root` replaces "/" in tests.
uint64_t available_memory(const std::string& root = "");

/// An empty file in memory that has no name in any folder and cannot be executed, with the `flags` of memfd_create(2).
/// Not valid, with errno, on a failure.
Fd make_memfd(const char* name, unsigned flags);

}  // namespace tarantella::runtime
