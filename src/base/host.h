#pragma once

#include <unistd.h>

#include <string>

namespace tarantella {

/// The name of this machine.
inline std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace tarantella
