#pragma once
// The output of ranks: kept in case they fail, or passed on line by line.

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tarantella::launch {

/// Remembers the last 64 KiB of a stream.
class Tail {
 public:
  static constexpr size_t kBytes = 64 * 1024;

  void append(std::string_view data);
  /// The last Python traceback or crash report and all that follows it; without one, the last 20 lines except those
  /// that frameworks always write at their start. Whole lines, each ended by a newline; a line that is longer than the
  /// tail begins at a whole character. Empty if nothing was written.
  std::string last_words() const;

 private:
  std::string kept_;
  bool cut_ = false;
};

/// Leaves out the lines that TensorFlow and absl write at every start before they read TF_CPP_MIN_LOG_LEVEL. Passes on
/// all else at once, also lines that have no end yet, such as progress bars.
class StartLines {
 public:
  /// What to pass on after `data`.
  std::string add(std::string_view data);
  /// What was held back because it may become such a line.
  std::string finish();

 private:
  std::string held_;      ///< the begin of a line that may be one
  bool in_line_ = false;  ///< a line was passed on without its end
};

/// Cuts a stream into whole lines and marks each with its rank: "[0] " or "[0@node1] ".
class LineMarker {
 public:
  /// A longer line is passed on in pieces, so that it does not delay other ranks. Each piece is a line of its own, cut
  /// between characters; from the second on they are marked "[0+]" instead of "[0]".
  static constexpr size_t kLongestLine = 1024 * 1024;

  explicit LineMarker(std::string rank) : rank_(std::move(rank)) {}
  explicit LineMarker(int rank) : LineMarker(std::to_string(rank)) {}

  /// The lines that `data` completes.
  std::string add(std::string_view data);
  /// The last line, if it has no newline yet, marked and ended by one.
  std::string finish();

 private:
  std::string marked(std::string_view line) const;

  std::string rank_;
  std::string partial_;
  bool continues_ = false;  ///< pieces of this line were passed on
};

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
