#pragma once
// The files of --log-dir: all output of each rank, in a file of its own.

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace tarantella::launch {

/// Files "rank-N.log" in one folder, which only the user may read. stdout and stderr of a rank share its file; neither
/// cuts a line of the other. Writes block while the file system does. Not thread-safe.
class LogFiles {
 public:
  /// No files: write() and finish() do nothing.
  LogFiles() = default;

  /// Makes the folder if there is none, and an empty file for each rank. A file of that name from an earlier job is
  /// replaced; a job that still writes it keeps its own. kInvalidArgument, with one line, if that fails.
  /// For the `ranks` ranks of the job from `first` on; the other functions count them from 0. `append` continues the
  /// files that are there: those of an earlier attempt of this job.
  static Result<LogFiles> open(const std::string& folder, int ranks, int first = 0, bool append = false);

  /// Adds output of a rank. Keeps the last line until it is complete.
  void write(int rank, bool is_err, std::string_view data);
  /// Adds the lines that are kept: the rank has ended.
  void finish(int rank);
  /// The first failure to write, as one line for the user, once; empty if there is none or it was asked for.
  std::string failure();

 private:
  struct File {
    Fd fd;
    std::string partial[2];  ///< of stdout and stderr
  };

  void put(int rank, std::string_view data);

  std::string folder_;
  int first_ = 0;
  std::vector<File> files_;
  std::string failure_;
};

}  // namespace tarantella::launch
