#pragma once
// Processes of this machine, as /proc shows them: those of the own PID namespace and user.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tarantella::launch {

/// A process: its start time distinguishes it from a later one that gets its number.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  ///< in clock ticks after boot

  bool operator==(const ProcessId&) const = default;
};

/// The content of a file; empty if it cannot be read.
std::string read_file(const std::string& path);

/// The numbers of all processes.
std::vector<pid_t> all_processes();

/// When the process started; none if there is none of this number, or if it is a zombie.
std::optional<uint64_t> start_time(pid_t pid);

/// Whether the process still runs and belongs to this process's effective user.
bool is_own_and_runs(const ProcessId& process);

/// Whether the process was started with the variable `entry`, "NAME=value", in its environment.
bool has_variable(pid_t pid, const std::string& entry);

/// Changes when the machine boots, so that numbers of processes mean nothing any more.
std::string boot_id();

/// Identifies the PID namespace of this process: a container has its own.
std::string pid_namespace();

/// Whether it is the resource tracker of Python's multiprocessing: a child that removes the shared memory of a process
/// which has died, as soon as all that used it have ended.
bool is_resource_tracker(pid_t pid);
/// How long one may take for that; on a busy machine it gets a core late.
inline constexpr Duration kResourceTrackerLimit = std::chrono::seconds(5);

}  // namespace tarantella::launch
