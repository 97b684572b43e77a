#pragma once
// The descriptors that a loop waits for, and what to do when they are ready.

#include <poll.h>

#include <functional>
#include <utility>
#include <vector>

namespace tarantella::launch {

/// Made anew for each wait. Holds only what is open: poll(2) refuses more entries than this process may have files,
/// even negative ones.
class Poller {
 public:
  /// A negative `fd` is left out.
  void add(int fd, short events, std::function<void()> handler = [] {}) {
    if (fd < 0) return;
    fds_.push_back({fd, events, 0});
    handlers_.push_back(std::move(handler));
  }
  /// Waits until one is ready, for at most `timeout_ms` (-1: no limit). Whether one is.
  bool wait(int timeout_ms) { return ::poll(fds_.data(), fds_.size(), timeout_ms) > 0; }
  /// Calls the handlers of those that were ready, in the order in which they were added.
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
