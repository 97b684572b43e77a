#include "base/log.h"

#include <unistd.h>

namespace tarantella {

void log_warning(const std::string& message) {
  const std::string line = "tarantella: WARNING: " + message + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tarantella
