#include "base/log.h"

#include <poll.h>
#include <unistd.h>

namespace tarantella {

void log_warning(const std::string& message) { log_line("WARNING: " + message); }

void log_line(const std::string& message) {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&room, 1, 0) != 1 || room.revents != POLLOUT) return;
  const std::string line = "tarantella: " + message + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tarantella
