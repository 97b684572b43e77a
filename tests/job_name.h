#pragma once

#include <unistd.h>

#include <atomic>
#include <string>

namespace tarantella {

/// A job that no other test, and no other run of the tests, uses.
inline std::string new_job_name() {
  static std::atomic<int> number{0};
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

}  // namespace tarantella
