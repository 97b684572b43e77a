#pragma once
// What a library changes in a process while it starts, or would leave behind, and how to take it back.

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

/// While one exists, a signal that would end this process at once, such as SIGTERM, waits; its destructor lets it come.
/// At most one at a time.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();

  [[nodiscard]] bool came() const;  ///< whether one waits; at any time, from any thread
};

/// The files in /dev/shm that this process has mapped, except those unlinked already.
std::set<std::string> shared_memory_files();

}  // namespace tarantella::transport
