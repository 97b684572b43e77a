#pragma once
// How much CPU time waits cost.

#include <chrono>
#include <ctime>
#include <thread>

#include "base/clock.h"

namespace tarantella {

/// The CPU time that all threads of this process use while this one sleeps. What they do first does not count.
inline Duration used_in(Duration sleep) {
  const auto cpu_time = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  std::this_thread::sleep_for(100ms);
  const auto before = cpu_time();
  std::this_thread::sleep_for(sleep);
  return cpu_time() - before;
}

}  // namespace tarantella
