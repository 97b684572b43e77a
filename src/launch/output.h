#pragma once
// What ranks write: kept for the case that they fail, or passed on line by line.

#include <string>
#include <string_view>

#include "base/status.h"

namespace tarantella::launch {

/// Remembers the last 64 KiB of a stream.
class Tail {
 public:
  static constexpr size_t kBytes = 64 * 1024;

  void append(std::string_view data);
  /// The last Python traceback, or the report of a crash, to the end, else the last 20 lines without those that
  /// frameworks write at each start. Whole lines (a line longer than the tail
  /// begins at a whole character), each ended by a newline. Empty if nothing was written.
  std::string last_words() const;

 private:
  std::string kept_;
  bool cut_ = false;
};

/// Cuts a stream into whole lines and marks each with its rank.
class LineMarker {
 public:
  /// A line longer than this is passed on in pieces, each a line of its own, cut between characters; the second
  /// and later ones are marked "[0+]" instead of "[0]". Ranks whose lines come meanwhile are not kept waiting.
  static constexpr size_t kLongestLine = 1024 * 1024;

  explicit LineMarker(int rank) : rank_(rank) {}

  /// The lines that `data` completes.
  std::string add(std::string_view data);
  /// The last line, if it had no end.
  std::string finish();

 private:
  std::string marked(std::string_view line) const;

  int rank_;
  std::string partial_;
  bool continues_ = false;  ///< a line of which pieces were passed on
};

/// A descriptor of the user's (his terminal, file or pipe) that is written only when it has room, so that a
/// reader who is slow, or has stopped, never keeps the launcher from its ranks.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void put(std::string_view data) { pending_ += data; }
  bool idle() const { return written_ == pending_.size(); }
  /// Too much is waiting: read no more from the ranks until some is written.
  bool full() const { return pending_.size() - written_ > 256 * 1024; }
  /// Writes a piece; call it when poll(2) reports POLLOUT. A reader that has gone away is told nothing more.
  void write_some();

 private:
  int fd_;
  std::string pending_;
  size_t written_ = 0;
};

}  // namespace tarantella::launch
