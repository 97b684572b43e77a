#pragma once
// The descriptors for which a loop waits, and a handler for each.

#include <poll.h>

#include <functional>
#include <utility>
#include <vector>

namespace tarantella::launch {

/// Make a new one for each wait. It holds open descriptors only: poll(2) refuses more entries than this process may
/// open, even negative ones.
class Poller {
 public:
  /// Adds a descriptor; ignores a negative one.
  void add(int fd, short events, std::function<void()> handler = [] {}) {
    if (fd < 0) return;
    fds_.push_back({fd, events, 0});
    handlers_.push_back(std::move(handler));
  }
  /// Blocks until a descriptor is ready, for at most `timeout_ms` (-1: no limit). Returns whether one is.
  bool wait(int timeout_ms) { return ::poll(fds_.data(), fds_.size(), timeout_ms) > 0; }
  /// Calls the handlers of the descriptors that were ready, in the order of add().
  void handle() const {
    for (size_t index = 0; index < fds_.size(); ++index) {
      if (fds_[index].revents != 0) handlers_[index]();
    }
  }

 private:
  std::vector<pollfd> fds_;
  std::vector<std::function<void()>> handlers_;
};

}  // namespace tarantella::launch
