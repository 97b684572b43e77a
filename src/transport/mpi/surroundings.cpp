#include "transport/mpi/surroundings.h"

#include <fstream>

namespace tarantella::transport {
namespace {

bool has_handler(int number) { return number != SIGKILL && number != SIGSTOP; }

}  // namespace

SignalHandlers::SignalHandlers() : saved_(static_cast<size_t>(SIGRTMAX) + 1) {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    // fails for the two that the C library keeps
    if (has_handler(number)) (void)sigaction(number, nullptr, &saved_[static_cast<size_t>(number)]);
  }
}

void SignalHandlers::restore() const {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (has_handler(number)) (void)sigaction(number, &saved_[static_cast<size_t>(number)], nullptr);
  }
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find("/dev/shm/");
    if (at == std::string::npos || line.ends_with(" (deleted)")) continue;
    files.insert(line.substr(at));
  }
  return files;
}

}  // namespace tarantella::transport
