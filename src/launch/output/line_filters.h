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
  std::string excerpt() const;

 private:
  std::string kept_;
  bool cut_ = false;
};

/// Leaves out the lines that TensorFlow and absl write at every start before they read TF_CPP_MIN_LOG_LEVEL. Passes on
/// all else at once, also lines that have no end yet, such as progress bars.
class StartupLineFilter {
 public:
  /// What to pass on after `data`.
  std::string add(std::string_view data);
  /// What was held back because it may become such a line.
  std::string finish();

 private:
  std::string held_;      ///< the begin of a line that may be one
  bool in_line_ = false;  ///< a line was passed on without its end
};

/// Cuts a stream into whole lines and prefixes each with its rank: "[0] " or "[0@node1] ".
class LinePrefixer {
 public:
  /// A longer line is passed on in pieces, so that it does not delay other ranks. Each piece is a line of its own, cut
  /// between characters; from the second on the prefix is "[0+]" instead of "[0]".
  static constexpr size_t kLongestLine = 1024 * 1024;

  explicit LinePrefixer(std::string label) : label_(std::move(label)) {}
  explicit LinePrefixer(int rank) : LinePrefixer(std::to_string(rank)) {}

  /// The lines that `data` completes.
  std::string add(std::string_view data);
  /// The last line, if it has no newline yet, prefixed and ended by one.
  std::string finish();

 private:
  std::string prefixed(std::string_view line) const;

  std::string label_;
  std::string partial_;
  bool continues_ = false;  ///< pieces of this line were passed on
};

}  // namespace tarantella::launch
