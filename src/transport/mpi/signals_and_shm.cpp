#include "transport/mpi/signals_and_shm.h"

#include <atomic>
#include <fstream>

namespace tarantella::transport {
namespace {

bool has_handler(int number) { return number != SIGKILL && number != SIGSTOP; }

constexpr int kHeld[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
std::atomic<bool> holding = false;
std::atomic<int> held = 0;  ///< the signal that waits

void end_by(int number) {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  (void)sigaction(number, &standard, nullptr);
  (void)raise(number);
}

/// A start that runs into its deadline may set this handler again when nobody holds signals any more.
void hold(int number) {
  if (holding.load()) {
    held.store(number);
  } else {
    end_by(number);
  }
}

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

HeldSignals::HeldSignals() {
  holding.store(true);
  for (const int number : kHeld) {
    struct sigaction now{};
    if (sigaction(number, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) continue;
    if (now.sa_handler != SIG_DFL) continue;
    now.sa_handler = hold;
    now.sa_flags = SA_RESTART;
    (void)sigaction(number, &now, nullptr);
  }
}

HeldSignals::~HeldSignals() {
  holding.store(false);
  for (const int number : kHeld) {
    struct sigaction now{};
    if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != hold) continue;
    now.sa_handler = SIG_DFL;
    (void)sigaction(number, &now, nullptr);
  }
  if (const int number = held.exchange(0); number != 0) end_by(number);
}

bool HeldSignals::came() const { return held.load() != 0; }

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
