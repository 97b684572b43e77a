#pragma once

#include <string>
#include <string_view>

namespace tarantella::launch {

/// A descriptor of the user (a terminal, file or pipe) that is written only if it has room, so that a reader that is
/// slow or has stopped never blocks the launcher.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void put(std::string_view data) { pending_ += data; }
  bool idle() const { return written_ == pending_.size(); }
  /// True if too much is pending: read no more from the ranks until some is written.
  bool full() const { return pending_.size() - written_ > 256 * 1024; }
  /// Writes a piece without blocking; call it when poll(2) reports POLLOUT. Drops everything if that fails.
  void write_some();
  /// The errno with which writing has failed last; 0 if it never has.
  int error() const { return error_; }

 private:
  int fd_;
  std::string pending_;
  size_t written_ = 0;
  int error_ = 0;
};

}  // namespace tarantella::launch
