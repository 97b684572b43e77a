#include "launch/output/sink.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tarantella::launch {

void Sink::write_some() {
  // A pipe that poll(2) calls writable takes PIPE_BUF bytes without blocking.
  const size_t size = std::min<size_t>(PIPE_BUF, pending_.size() - written_);
  const ssize_t written = ::write(fd_, pending_.data() + written_, size);
  if (written < 0 && errno != EINTR && errno != EAGAIN) {
    error_ = errno;
    pending_.clear();
    written_ = 0;
    return;
  }
  if (written > 0) written_ += static_cast<size_t>(written);
  if (idle() || written_ > 1024 * 1024) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace tarantella::launch
