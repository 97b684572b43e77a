#pragma once
// What a library changes in a process while it starts, and how to take it back.

#include <csignal>
#include <set>
#include <string>
#include <vector>

namespace tarantella::transport {

/// The dispositions of all signals at the time of its construction. Not for use beside threads that change them.
class SignalHandlers {
 public:
  SignalHandlers();
  void restore() const;

 private:
  std::vector<struct sigaction> saved_;  ///< by number
};

/// The files in /dev/shm that this process has mapped, except those unlinked already.
std::set<std::string> shared_memory_files();

}  // namespace tarantella::transport
